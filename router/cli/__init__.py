"""The command line. Each command is one file; what it needs is imported when it runs."""

"""hosted."""

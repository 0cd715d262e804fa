"""The admin API, one file per subject; each gives its router by `routes(admin)`."""

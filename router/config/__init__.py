"""Configuration: the typed schema, its loader, its text, and what workers are handed."""

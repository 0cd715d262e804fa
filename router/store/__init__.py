"""State that proxies share: a private Valkey server, and the stream of events."""

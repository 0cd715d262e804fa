"""classifier."""

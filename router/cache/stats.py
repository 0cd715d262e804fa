"""Counts of the cache, for metrics and for people."""

from __future__ import annotations

from typing import NamedTuple


class CacheStats(NamedTuple):
    """Counts of one worker since its start, and where its cache stands."""

    state: str
    """off, starting, up, down or stopped."""
    writable: bool
    """Whether Redis took the last entry."""
    bytes_read: int
    bytes_written: int
    lookups_failed: int
    writes_failed: int
    connections_lost: int
    unreadable: int
    """Entries that were broken, of another version, or encrypted otherwise."""


OFF = CacheStats("off", True, 0, 0, 0, 0, 0, 0)

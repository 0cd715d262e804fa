"""Counts that the hot path keeps as plain numbers; `flush` hands them on to prometheus-client, now and then.

A request adds to some twenty figures. prometheus-client takes a lock, and with several workers writes a file, for each:
done once a second for all requests together, that costs nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client import Counter, Histogram


class Count:
    """A counter with its labels; add to `pending`."""

    __slots__ = ("_child", "_family", "_labels", "pending")

    def __init__(self, family: Counter, labels: Sequence[str]) -> None:
        self._family, self._labels = family, labels
        self._child: Counter | None = None
        self.pending = 0.0

    def flush(self) -> None:
        """Hand on what came since the last flush."""
        if self.pending:
            if self._child is None:
                self._child = self._family.labels(*self._labels) if self._labels else self._family
            self._child.inc(self.pending)
            self.pending = 0.0


class Spread:
    """A histogram with its labels."""

    __slots__ = ("_child", "_counts", "_edges", "_family", "_labels", "_sum")

    def __init__(self, family: Histogram, edges: Sequence[float], labels: Sequence[str]) -> None:
        self._family, self._edges, self._labels = family, edges, labels
        self._child: Histogram | None = None
        self._counts = [0] * (len(edges) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Take in one value."""
        self._counts[bisect_left(self._edges, value)] += 1
        self._sum += value

    def flush(self) -> None:
        """Hand on what came since the last flush."""
        if not any(self._counts):
            return
        if self._child is None:
            self._child = self._family.labels(*self._labels)
        # Its own buckets hold one range each, as these do; `observe` would want every value anew.
        for bucket, count in zip(self._child._buckets, self._counts, strict=True):
            if count:
                bucket.inc(count)
        self._child._sum.inc(self._sum)
        self._counts = [0] * len(self._counts)
        self._sum = 0.0


__all__ = ["Count", "Spread"]

"""Vectors of questions that have answers: found by what must be equal, compared by cosine; bounded, oldest out."""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

from router.cache.semantic.content import in_order

MOST_COMPARED = 512
"""Candidates of one bucket, newest kept: some 20 µs of the worker's time each, for 384 dimensions."""


class Candidate(NamedTuple):
    """One question that was answered."""

    entry: str
    """Name of its answer in Redis."""
    words: tuple[int, ...]
    """Hashes of its words, for their order."""
    vector: Sequence[float]
    """Of length 1."""
    until_ms: int
    """When its answer is gone, ms since 1970."""


class Index:
    """Candidates by bucket: all of one bucket have everything in common that must be equal."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._buckets: dict[str, dict[str, Candidate]] = {}
        self._order: dict[tuple[str, str], None] = {}

    def __len__(self) -> int:
        return len(self._order)

    def add(self, bucket: str, candidate: Candidate) -> None:
        """Take one in, in place of an older one of the same answer."""
        self.drop(bucket, candidate.entry)
        rows = self._buckets.setdefault(bucket, {})
        if len(rows) >= MOST_COMPARED:
            self.drop(bucket, next(iter(rows)))
        if len(self._order) >= self._most:
            self.drop(*next(iter(self._order)))
        self._buckets.setdefault(bucket, {})[candidate.entry] = candidate
        self._order[bucket, candidate.entry] = None

    def drop(self, bucket: str, entry: str) -> None:
        """Forget one, if it is there."""
        rows = self._buckets.get(bucket)
        if rows is None or rows.pop(entry, None) is None:
            return
        del self._order[bucket, entry]
        if not rows:
            del self._buckets[bucket]

    def nearest(
        self, bucket: str, words: Sequence[int], vector: Sequence[float], least: float, now_ms: int, but: str = ""
    ) -> tuple[float, Candidate] | None:
        """Return the likest candidate whose cosine is at least `least` and whose words stand in the same order.

        Never the one of the entry `but`.
        """
        best: tuple[float, Candidate] | None = None
        for candidate in list(self._buckets.get(bucket, {}).values()):
            if candidate.until_ms <= now_ms:
                self.drop(bucket, candidate.entry)
                continue
            if candidate.entry == but or len(candidate.vector) != len(vector):
                continue
            alike = min(1.0, sum(map(mul, candidate.vector, vector)))
            if alike >= (best[0] if best is not None else least) and in_order(candidate.words, words):
                best = (alike, candidate)
        return best

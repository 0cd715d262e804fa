"""Candidate thresholds: steps around the present ones, and a coarse grid over all, as shares of traffic.

A threshold is named by the share of requests whose risk is within it, so that steps mean the same whatever the scale
of the risks. A lower precision never gets a larger share than a higher one: where it is allowed, the higher are too.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from router.tuning.replay import Arrival, Facts

Shares = tuple[float, ...]
"""Share of traffic within the threshold of each lower precision, the higher precision first."""


class Scale:
    """Turns thresholds into shares of traffic and back, by the recorded risks."""

    def __init__(self, requests: Sequence[Arrival], facts: Facts) -> None:
        self.precisions = facts.lower
        self._columns = [facts.precisions.index(p) for p in self.precisions]
        self._risks = [sorted(r.risks[k] for r in requests) for k in self._columns]
        self._rows = [tuple(r.risks[k] for k in self._columns) for r in requests]

    def shares(self, thresholds: Mapping[str, float]) -> Shares:
        """Return how much of the traffic lies within each threshold."""
        return tuple(
            bisect_right(risks, thresholds.get(p, 0.0)) / max(1, len(risks))
            for p, risks in zip(self.precisions, self._risks, strict=True)
        )

    def thresholds(self, shares: Shares) -> dict[str, float]:
        """Return thresholds that hold these shares, rounded to 6 digits, between two recorded risks."""
        found = {}
        for precision, share, risks in zip(self.precisions, shares, self._risks, strict=True):
            n = len(risks)
            at = round(share * n)
            if at <= 0:
                found[precision] = 0.0
            elif at >= n:
                found[precision] = round(min(1.0, risks[-1] + 1e-6), 6) if n else 0.0
            else:
                found[precision] = round((risks[at - 1] + risks[at]) / 2, 6)
        return found

    def sides(self, thresholds: Mapping[str, float]) -> list[int]:
        """Return the index of the lowest precision allowed for each request; -1: full precision alone."""
        limits = [thresholds.get(p, 0.0) for p in self.precisions]
        return [_lowest(row, limits) for row in self._rows]

    def moved(self, one: Sequence[int], other: Sequence[int]) -> float:
        """Return the share of traffic whose lowest allowed precision differs between two `sides`."""
        return sum(a != b for a, b in zip(one, other, strict=True)) / max(1, len(one))


def _lowest(row: Sequence[float], limits: Sequence[float]) -> int:
    # The lower precisions come last.
    k = len(row) - 1
    while k >= 0 and row[k] > limits[k]:
        k -= 1
    return k


def around(shares: Shares, step: float) -> list[Shares]:
    """Return the shares within `step` of the present ones, the present ones first."""
    # The lowest precision moves traffic of the next one: half a step each way is within one step of both.
    moves = [
        *itertools.product((0.0, step, -step * 0.5), repeat=len(shares)),
        *itertools.product((0.0, step * 0.5), repeat=len(shares)),
    ]
    return list(dict.fromkeys(_ordered(tuple(s + m for s, m in zip(shares, move, strict=True))) for move in moves))


def beside(shares: Shares, step: float) -> list[Shares]:
    """Return the shares one small step away in every direction."""
    moves = itertools.product((0.0, step, -step), repeat=len(shares))
    return list(dict.fromkeys(_ordered(tuple(s + m for s, m in zip(shares, move, strict=True))) for move in moves))


def grid(count: int, points: int = 5) -> list[Shares]:
    """Return a coarse grid over all shares from none to all, for `count` lower precisions."""
    levels = [k / (points - 1) for k in range(points)]
    return [s for s in itertools.product(levels, repeat=count) if all(a >= b for a, b in itertools.pairwise(s))]


def _ordered(shares: Shares) -> Shares:
    out: list[float] = []
    most = 1.0
    for share in shares:
        most = min(most, max(0.0, share))
        out.append(round(most, 6))
    return tuple(out)

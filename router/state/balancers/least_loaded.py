"""The replica with the fewest requests; equal ones in turn."""

from __future__ import annotations

from collections.abc import Sequence


def pick(loads: Sequence[float], turn: int) -> int:
    """Return the index of the least load; among equals the `turn`-th."""
    least = min(loads)
    equal = [i for i, load in enumerate(loads) if load == least]
    return equal[turn % len(equal)]

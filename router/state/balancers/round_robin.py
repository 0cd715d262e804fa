"""One after the other, whatever their load."""

from __future__ import annotations

from collections.abc import Sequence


def pick(loads: Sequence[float], turn: int) -> int:
    """Return `turn` modulo the number of replicas."""
    return turn % len(loads)

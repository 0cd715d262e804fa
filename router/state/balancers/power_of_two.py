"""The less loaded of two drawn at random: no herd when many proxies see the same figures (Mitzenmacher, 2001)."""

from __future__ import annotations

import random
from collections.abc import Sequence


def pick(loads: Sequence[float], turn: int) -> int:
    """Return the index of the lower load of two; the draw follows from `turn`, so that it can be repeated."""
    if len(loads) == 1:
        return 0
    first, second = random.Random(turn).sample(range(len(loads)), 2)
    return first if loads[first] <= loads[second] else second

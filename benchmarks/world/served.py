"""What a world tells of each arrival."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.world.traffic import Arrival
from benchmarks.world.truth import Worth
from router.decision import Decision


class Served(NamedTuple):
    """What became of one arrival."""

    index: int
    arrival: Arrival
    variant: str
    """Empty where nothing could serve it."""
    precision: str
    replica: int
    decision: Decision
    ttft_s: float
    """Infinite where it was not served."""
    itl_s: float | None
    e2e_s: float
    ended: float
    worth: Worth

    @property
    def done(self) -> bool:
        """Whether it was answered at all."""
        return bool(self.variant)

"""Planted quality: what each precision's answer to a request is really worth, known to the world and hidden from the router."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from benchmarks.world.traffic import Arrival
from router.decision.types import FULL_PRECISIONS

_MASK = (1 << 64) - 1


class Worth(NamedTuple):
    """Quality of one answer, in [0, 1]."""

    got: float
    """As it turned out: 0 or 1."""
    expected: float
    """Its expectation over answers to this request."""
    full: float
    """What full precision's answer to the same request turned out to be."""
    full_expected: float


@dataclass(frozen=True)
class Truth:
    """Right or wrong, with the losses nested: what int8 gets wrong because of its precision, int4 does as well.

    One uniform number u per request, drawn from `seed` and its index, decides all its answers, so that runs of different
    policies on the same traffic are paired. Full precision is right when u < `base`. A precision p loses it when
    u < loss(p), and gets right what full precision does not when u > 1 - gain(p):

        loss(p) = min(base, scale(p) * risk(p) + shift(p) + difficulty)      expected quality = base - loss(p) + gain(p)

    `scale` 1, `shift` 0, `gain` 0 mean that the classifier is calibrated and nothing is won.
    """

    base: float = 0.7
    """Share of requests that full precision answers right."""
    scale: Mapping[str, float] = field(default_factory=dict)
    """True loss per unit of predicted risk; 1 where missing."""
    shift: Mapping[str, float] = field(default_factory=dict)
    """Loss of every request at this precision: a bad checkpoint. 0 where missing."""
    gain: Mapping[str, float] = field(default_factory=dict)
    """Probability that it is right where full precision is wrong; 0 where missing."""
    hard: float = 1.0
    """Part of an arrival's `difficulty` that becomes loss."""
    seed: int = 0

    def loss(self, precision: str, arrival: Arrival) -> float:
        """Return the probability that this precision alone spoils the answer."""
        if precision in FULL_PRECISIONS:
            return 0.0
        loss = self.scale.get(precision, 1.0) * arrival.risks.get(precision, 1.0) + self.shift.get(precision, 0.0)
        return min(self.base, max(0.0, loss + self.hard * arrival.difficulty))

    def expected(self, precision: str, arrival: Arrival) -> float:
        """Return the expected quality at this precision."""
        won = 0.0 if precision in FULL_PRECISIONS else min(1.0 - self.base, self.gain.get(precision, 0.0))
        return self.base - self.loss(precision, arrival) + won

    def worth(self, precision: str, arrival: Arrival, index: int) -> Worth:
        """Return the quality of the answer to request number `index`."""
        u = uniform(self.seed, index)
        full = 1.0 if u < self.base else 0.0
        if precision in FULL_PRECISIONS:
            return Worth(full, self.base, full, self.base)
        loss, won = self.loss(precision, arrival), min(1.0 - self.base, self.gain.get(precision, 0.0))
        right = loss <= u < self.base or u >= 1.0 - won
        return Worth(1.0 if right else 0.0, self.base - loss + won, full, self.base)

    def worse(self, precision: str, by: float) -> Truth:
        """Return a truth in which this precision loses `by` more on every request."""
        return replace(self, shift={**self.shift, precision: self.shift.get(precision, 0.0) + by})


def uniform(seed: int, index: int) -> float:
    """Return a number in [0, 1) that is a pure function of both (SplitMix64: Steele, Lea, Flood, 2014)."""
    z = (index * 0x9E3779B97F4A7C15 + seed * 0xD1B54A32D192ED03 + 0x632BE59BD9B4E019) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((z ^ (z >> 31)) >> 11) / (1 << 53)

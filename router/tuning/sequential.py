"""Tests that may be looked at after every request: betting on bounded observations.

Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting" (2023): under the null hypothesis a
bettor's wealth is a martingale, so by Ville's inequality it ever reaches 1/alpha with probability at most alpha, at
whatever moment one stops. `Detector` is the e-detector of Shin, Ramdas and Rinaldo (2023): it also notices a change
that comes after a long good time; false alarms are at least `1/alpha` observations apart on average.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_MOST = 0.9
"""Largest share of the wealth that one observation may take."""
_MEMORY = 50
"""Observations from which a detector's stake follows."""
_PRIOR = 2.0
"""Observations at which the bettor's estimates begin: half a unit from the null, with full variance."""


@dataclass(slots=True)
class Bet:
    """Wealth against "the mean is at most (or at least) `null`"; observations lie in [low, high]."""

    null: float
    low: float
    high: float
    above: bool = True
    """True: grows when the mean is above `null`, i.e. tests "at most"; False: tests "at least"."""
    log_wealth: float = 0.0
    most: float = 0.0
    """Largest log wealth so far: what the test goes by."""
    n: int = 0
    mean_sum: float = 0.0
    square_sum: float = 0.0

    def add(self, value: float) -> None:
        """Take in one observation; the stake was fixed before it."""
        # A confidence sequence places 162 bets on each observation: written out, without calls.
        low, high, null, n = self.low, self.high, self.null, self.n
        span = high - low
        # The worst observation must leave something: the null is `room` above it on the unit scale.
        room = (null - low) if self.above else (high - null)
        stake = _MOST * span / room if room > 0.0 else 10.0
        # Approximate GRO (aGRAPA): mean over second moment, from the past alone.
        wanted = 0.5
        if n:
            square = (self.square_sum + _PRIOR * 0.01) / (n + _PRIOR)
            wanted = self.mean_sum / (n + _PRIOR) / (square if square > 1e-9 else 1e-9)
        if wanted < stake:
            stake = wanted if wanted > 0.0 else 0.0
        gain = ((value if low <= value <= high else high if value > high else low) - null) / span
        if not self.above:
            gain = -gain
        loss = stake * gain
        wealth = self.log_wealth = self.log_wealth + math.log1p(loss if loss > -_MOST else -_MOST)
        if wealth > self.most:
            self.most = wealth
        self.n = n + 1
        self.mean_sum += gain
        self.square_sum += gain * gain

    def factor(self, value: float) -> float:
        """Return what the observation multiplies the wealth by, and learn from it."""
        before = self.log_wealth
        self.add(value)
        return math.exp(self.log_wealth - before)

    def won(self, alpha: float) -> bool:
        """Return whether the null hypothesis is rejected at level `alpha`."""
        return self.most >= math.log(1.0 / alpha)

    @property
    def mean(self) -> float:
        """Mean of the observations; the null's value without any."""
        if not self.n:
            return self.null
        shift = self.mean_sum / self.n * (self.high - self.low)
        return self.null + (shift if self.above else -shift)


@dataclass(slots=True)
class Detector:
    """Notices when the mean falls below `null`, whenever that begins."""

    bet: Bet
    log_sum: float = -math.inf
    n: int = 0

    @classmethod
    def below(cls, null: float, low: float, high: float) -> Detector:
        """Return a detector of means below `null`."""
        return cls(Bet(null, low, high, above=False))

    def add(self, value: float) -> None:
        """Take in one observation."""
        factor = self.bet.factor(value)
        if self.bet.n > _MEMORY:
            # Older observations fade, so that the stake follows a change.
            keep = _MEMORY / self.bet.n
            self.bet.n = _MEMORY
            self.bet.mean_sum *= keep
            self.bet.square_sum *= keep
        before = math.exp(self.log_sum) if self.log_sum > -700.0 else 0.0
        self.log_sum = math.log(max(1e-300, (min(before, 1e300) + 1.0) * factor))
        self.n += 1

    def alarmed(self, alpha: float) -> bool:
        """Return whether the sum of bets reached 1/alpha."""
        return self.log_sum >= math.log(1.0 / alpha)


def confidence_sequence(
    values: Iterable[float], low: float, high: float, alpha: float, steps: int = 80
) -> tuple[float, float]:
    """Return the interval of means that no bet has rejected at level `alpha`: valid at any time."""
    grid = [low + (high - low) * k / steps for k in range(steps + 1)]
    above = [Bet(m, low, high, above=True) for m in grid]
    below = [Bet(m, low, high, above=False) for m in grid]
    won = math.log(2.0 / alpha)
    for value in values:
        for bets in (above, below):
            for bet in bets:
                bet.add(value)
        # What is rejected once stays so: no more is placed on it.
        above = [bet for bet in above if bet.most < won]
        below = [bet for bet in below if bet.most < won]
    kept = {bet.null for bet in above} & {bet.null for bet in below}
    return (min(kept), max(kept)) if kept else (low, high)

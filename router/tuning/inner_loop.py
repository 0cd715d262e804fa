"""The fast loop: thresholds move with load between the bounds that a tuning job set. Seconds, not hours.

A PI controller with clamped integral (anti-windup): position 0 is the lower bound, 1 the upper one. Its error is the
share of requests missing from the target, the worse of what was measured and what the speeds predict, so that a burst
degrades precision before it breaks latency. It rises at full gain and falls slowly, which keeps it from hunting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from router.background import Background
from router.config.loop import InnerLoopConfig
from router.decision.candidates import predict
from router.decision.types import Scenario, VariantState

FALL = 0.5
"""Share of the gain with which it comes back."""
COMFORT, LIMIT = 0.8, 1.2
"""Predicted time over target: below the first everything is in time, above the second nothing."""

Bounds = Mapping[str, tuple[float, float]]


class Position(NamedTuple):
    """The controller's state."""

    value: float = 0.0
    """In [0, 1]."""
    integral: float = 0.0


class Signals(NamedTuple):
    """What the controller sees at one step."""

    measured: float | None
    """Share of the last seconds' requests in time; None without requests."""
    predicted: float
    """Share of requests that the present speeds would serve in time."""
    seconds: float
    """Since the last step."""


def step(position: Position, signals: Signals, settings: InnerLoopConfig) -> Position:
    """Return the next position."""
    share = signals.predicted if signals.measured is None else min(signals.measured, signals.predicted)
    missing = settings.target - share
    if missing < 0.0:
        # All in time is only 1 - target above the target: scaled so that it comes back in some integral times.
        missing = FALL * missing / (1.0 - settings.target)
    integral = position.integral + settings.gain * missing * signals.seconds / settings.integral_s
    integral = min(1.0, max(0.0, integral))
    value = integral + settings.gain * max(0.0, missing)
    return Position(min(1.0, max(0.0, value)), integral)


def thresholds(base: Mapping[str, float], bounds: Bounds, position: float) -> dict[str, float]:
    """Return `base` with every bounded precision at `position` between its bounds."""
    moved = dict(base)
    for precision, (low, high) in bounds.items():
        moved[precision] = low + position * (high - low)
    return moved


def predicted_share(
    states: tuple[VariantState, ...], scenario: Scenario, prompt_tokens: int, output_tokens: int
) -> float:
    """Return the share of requests that full precision would serve in time now: 1, falling to 0 near the targets.

    Full precision is what the tightest thresholds would ask for: while it is comfortable there is no need to degrade.
    """
    regular = [v for v in states if v.live and not v.last_resort]
    if not regular:
        return 0.0
    top = max(v.rank for v in regular)
    worst = []
    for state in regular:
        if state.rank < top:
            continue
        ttft, e2e = predict(state.speed, prompt_tokens, output_tokens)
        worst.append(
            max(ttft / scenario.ttft_s if scenario.ttft_s else 0.0, e2e / scenario.e2e_s if scenario.e2e_s else 0.0)
        )
    return min(1.0, max(0.0, (LIMIT - min(worst)) / (LIMIT - COMFORT)))


class InnerLoop:
    """Runs the controller of each bounded group in a worker.

    `sense` gives a group's signals (without `seconds`), `apply` sets its thresholds. Both are called on the event loop.
    """

    def __init__(
        self,
        settings: InnerLoopConfig,
        sense: Callable[[str], tuple[float | None, float]],
        apply: Callable[[str, Mapping[str, float]], None],
        log: logging.Logger,
    ) -> None:
        self._settings = settings
        self._sense = sense
        self._apply = apply
        self._log = log
        self._groups: dict[str, tuple[dict[str, float], dict[str, tuple[float, float]]]] = {}
        self.positions: dict[str, Position] = {}
        self._task = Background("inner loop")

    def follow(self, group: str, base: Mapping[str, float], bounds: Bounds) -> None:
        """Take over a group's thresholds of a new version; without bounds the loop leaves it alone."""
        if not bounds or not self._settings.enabled:
            self._groups.pop(group, None)
            self.positions.pop(group, None)
            return
        self._groups[group] = (dict(base), dict(bounds))
        self.positions.setdefault(group, Position(integral=0.5, value=0.5))

    def set(self, settings: InnerLoopConfig) -> None:
        """Go on by other settings; from the next step on, and before `follow` tells of the groups."""
        self._settings = settings

    def tick(self, seconds: float) -> None:
        """Make one step for every group."""
        for group, (base, bounds) in self._groups.items():
            measured, predicted = self._sense(group)
            position = step(self.positions[group], Signals(measured, predicted, seconds), self._settings)
            self.positions[group] = position
            self._apply(group, thresholds(base, bounds, position.value))

    def start(self) -> None:
        """Begin, in a task of the running loop."""
        self._task.start(self._run)

    async def stop(self) -> None:
        """End the task."""
        await self._task.stop()

    async def _run(self) -> None:
        while True:
            seconds = self._settings.interval_s
            await asyncio.sleep(seconds)
            try:
                self.tick(seconds)
            except Exception:
                # The thresholds stay as they are; the next step may work.
                self._log.exception("inner loop: a step failed")

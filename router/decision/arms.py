"""Which arm of a canary decides a request: pure, so that a recorded draw gives the same arm again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

ArmName = Literal["stable", "canary"]


class CanaryArm(NamedTuple):
    """Thresholds on trial, and the share of requests that try them."""

    share: float
    thresholds: Mapping[str, float]
    """Highest risk by precision; complete, as they hold for this arm."""
    version: str


class Arm(NamedTuple):
    """What decides one request."""

    name: ArmName
    thresholds: Mapping[str, float]
    version: str


def choose_arm(draw: float, thresholds: Mapping[str, float], version: str, canary: CanaryArm | None) -> Arm:
    """Return the arm for a `draw` in [0, 1): the canary's where it is below the canary's share."""
    if canary is not None and draw < canary.share:
        return Arm("canary", canary.thresholds, canary.version)
    return Arm("stable", thresholds, version)

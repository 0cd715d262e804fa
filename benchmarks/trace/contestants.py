"""Who is compared: each serves the same requests on the same number of devices."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from backends.settings import Precision
from benchmarks.world.hardware import VariantSpec
from router.decision import POLICIES, Decision, Inputs, Policy
from router.decision.candidates import judge
from router.decision.policies import adaptive

Fleet = Mapping[Precision, int]
"""Devices by precision."""


@dataclass(frozen=True)
class Contestant:
    """A policy on a fleet."""

    name: str
    fleet: Fleet
    policy: Policy
    thresholds: Mapping[str, float]
    refuses: bool = False
    """Whether requests that no variant would answer in time are refused."""

    def specs(self) -> list[VariantSpec]:
        """Return the variants."""
        return [VariantSpec(precision, count) for precision, count in self.fleet.items()]


def static(inputs: Inputs) -> Decision:
    """Thresholds alone: the lowest precision that the risk allows, whatever the load."""
    scenario = inputs.scenario._replace(ttft_s=None, e2e_s=None, gives_way="speed", prefer="lowest_precision")
    return adaptive.decide(inputs._replace(scenario=scenario))


def load_only(inputs: Inputs) -> Decision:
    """Load alone: full precision while it is predicted to be in time, else the fastest, whatever the risk."""
    candidates = judge(inputs)
    best = max(zip(inputs.variants, candidates, strict=True), key=lambda p: p[0].rank)[1]
    if not (best.live and best.in_time):
        best = min((c for c in candidates if c.live), key=lambda c: (c.e2e_s, c.variant), default=best)
    return _taken(inputs, candidates, best.variant)


def drawn(shares: Mapping[str, float], seed: int) -> Policy:
    """Return a policy that draws the variant's precision with these shares."""
    generator = random.Random(seed)
    names, weights = list(shares), list(shares.values())

    def decide(inputs: Inputs) -> Decision:
        candidates = judge(inputs)
        precision = generator.choices(names, weights)[0]
        return _taken(inputs, candidates, next(c.variant for c in candidates if c.precision == precision))

    return decide


def _taken(inputs: Inputs, candidates: Sequence[object], variant: str) -> Decision:
    base = adaptive.decide(inputs._replace(request=inputs.request._replace(pin=variant)))
    return base._replace(reason="within_limits")


def contestants(devices: int, thresholds: Mapping[str, float]) -> list[Contestant]:
    """Return all but the random one, whose shares come from Bitgear's run. `devices` is divisible by 6."""
    third, two_thirds = devices // 3, devices * 2 // 3
    even: Fleet = {"fp16": third, "int8": third, "int4": devices - 2 * third}
    most_int8: Fleet = {"fp16": devices // 6, "int8": two_thirds, "int4": devices - devices // 6 - two_thirds}
    own: Callable[[str], Policy] = POLICIES.__getitem__
    return [
        Contestant("all FP16", {"fp16": devices}, own("adaptive"), {}),
        Contestant("all INT8", {"int8": devices}, own("adaptive"), {}),
        Contestant("all FP16, refusing", {"fp16": devices}, own("adaptive"), {}, refuses=True),
        Contestant("all INT8, refusing", {"int8": devices}, own("adaptive"), {}, refuses=True),
        Contestant("all INT4", {"int4": devices}, own("adaptive"), {}),
        Contestant("static thresholds", even, static, thresholds),
        Contestant("load only", even, load_only, thresholds),
        Contestant("Bitgear", even, own("adaptive"), thresholds),
        Contestant("Bitgear, refusing", even, own("adaptive"), thresholds, refuses=True),
        Contestant("Bitgear, most INT8", most_int8, own("adaptive"), thresholds),
        Contestant("Bitgear, most INT8, refusing", most_int8, own("adaptive"), thresholds, refuses=True),
    ]

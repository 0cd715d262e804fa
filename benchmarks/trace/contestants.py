"""Who is compared: each serves the same requests on the same number of devices."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backends.settings import Precision
from benchmarks.trace.tuned import Tuned
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
    bounds: Mapping[str, tuple[float, float]] | None = None
    """What the inner loop moves the thresholds between; None: it does not run."""

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


def fleets(devices: int) -> dict[str, Fleet]:
    """Return the mixed fleets by name; `devices` is divisible by 6.

    `advised`: what tuning finds where INT8 is proven as good as FP16 and INT4 is no faster: INT8, and one sixth at FP16 to
    go on proving it.
    """
    third, sixth = devices // 3, devices // 6
    return {
        "even": {"fp16": third, "int8": third, "int4": third},
        "most INT8": {"fp16": sixth, "int8": devices - 2 * sixth, "int4": sixth},
        "advised": {"fp16": sixth, "int8": devices - sixth},
    }


def contestants(devices: int, shipped: Mapping[str, float], tuned: Mapping[str, Tuned]) -> list[Contestant]:
    """Return all but the random one, whose shares come from Bitgear's run; `tuned` by name of fleet."""
    mixed = fleets(devices)
    even, most = mixed["even"], mixed["most INT8"]
    own = POLICIES["adaptive"]

    def loop(name: str, label: str, *, refuses: bool = False) -> Contestant:
        found = tuned[name]
        return Contestant(label, mixed[name], own, found.thresholds, refuses, found.bounds)

    return [
        Contestant("all FP16", {"fp16": devices}, own, {}),
        Contestant("all FP16, refusing", {"fp16": devices}, own, {}, refuses=True),
        Contestant("all INT8", {"int8": devices}, own, {}),
        Contestant("all INT8, refusing", {"int8": devices}, own, {}, refuses=True),
        Contestant("all INT4", {"int4": devices}, own, {}),
        Contestant("static thresholds", even, static, shipped),
        Contestant("load only", even, load_only, shipped),
        Contestant("Bitgear", even, own, shipped),
        loop("even", "Bitgear, tuned, inner loop"),
        Contestant("Bitgear, most INT8", most, own, shipped),
        loop("most INT8", "Bitgear, most INT8, tuned, inner loop"),
        loop("advised", "Bitgear, advised fleet"),
        loop("advised", "Bitgear, advised fleet, refusing", refuses=True),
    ]

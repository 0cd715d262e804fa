"""The cautious policy, and the baseline of every comparison: full precision as long as it lives."""

from __future__ import annotations

from dataclasses import replace

from router.decision.policies import adaptive
from router.decision.types import Decision, Inputs


def decide(inputs: Inputs) -> Decision:
    """Decide as `adaptive` with every threshold at zero and without latency targets: the reference, or the nearest to it."""
    strict = replace(
        inputs,
        risks={v.precision: 1.0 for v in inputs.variants},
        thresholds={},
        scenario=replace(inputs.scenario, ttft_s=None, e2e_s=None, gives_way="speed", prefer="cheapest"),
    )
    decision = adaptive.decide(strict)
    return replace(decision, reason="full_precision") if decision.reason == "within_limits" else decision

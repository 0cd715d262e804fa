"""The cautious policy, and the baseline of every comparison: full precision as long as it lives."""

from __future__ import annotations

from router.decision.candidates import judge
from router.decision.policies import adaptive
from router.decision.types import Decision, Inputs


def decide(inputs: Inputs) -> Decision:
    """Decide as `adaptive` with nothing but the reference allowed and no latency targets: the reference, or the nearest to it.

    Risks stay as they were estimated: they still count against the client's own bound, and are told in the decision.
    """
    regular = [v.rank for v in inputs.variants if not v.last_resort] or [v.rank for v in inputs.variants]
    reference = max(regular, default=0.0)
    candidates = tuple(
        c._replace(allowed=v.rank >= reference, in_time=True, threshold=c.threshold if v.rank >= reference else 0.0)
        for v, c in zip(inputs.variants, judge(inputs), strict=True)
    )
    scenario = inputs.scenario._replace(gives_way="speed", prefer="cheapest")
    decision = adaptive.choose(inputs._replace(scenario=scenario), candidates)
    return decision._replace(reason="full_precision") if decision.reason == "within_limits" else decision

"""What one answer cost, and what it would have cost at full precision. Pure functions.

A request that shares its replica with others holds its part of it: its time there divided by the requests that ran with
it. The counterfactual takes the decision's own predictions: had the group's highest precision answered, the time would
have changed by the ratio of the two predicted whole answers. Both were predicted at that moment's load, in which full
precision carries only its present share of the traffic; with all of it it would be slower, so savings are understated.
"""

from __future__ import annotations

from typing import NamedTuple

from router.decision.types import Candidate, Decision
from router.proxy.outcome import Outcome
from router.state import Group, Variant


class Cost(NamedTuple):
    """Cost of one answer, and of the same answer at full precision."""

    gpu_s: float = 0.0
    """GPU-seconds: the request's share of its replica's time, times the GPUs that the replica holds."""
    money: float = 0.0
    """In the configured currency; 0 where no price is known."""
    full_gpu_s: float = 0.0
    """GPU-seconds that the group's highest precision would have taken; `gpu_s` where nothing was predicted."""
    full_money: float = 0.0


def cost_of(outcome: Outcome, chosen: Candidate | None) -> Cost:
    """Return what the answer cost; nothing for a hosted model, which holds no GPU of ours."""
    variant, group, decision = outcome.variant, outcome.group, outcome.decision
    if variant is None or group is None or decision is None or variant.spec.kind == "litellm" or not outcome.sent_up:
        return Cost()
    gpu_s = max(0.0, outcome.ended - outcome.sent_up) / max(1.0, outcome.running) * variant.spec.gpus
    money = gpu_s * (variant.spec.gpu_hour or 0.0) / 3600
    full = _full_precision(group, decision)
    if full is None or full[0] is variant or chosen is None or chosen.e2e_s <= 0.0 or full[1].e2e_s <= 0.0:
        return Cost(gpu_s, money, gpu_s, money)
    spec = full[0].spec
    full_gpu_s = gpu_s / variant.spec.gpus * spec.gpus * full[1].e2e_s / chosen.e2e_s
    if variant.spec.gpu_hour is None or spec.gpu_hour is None:
        # With one price unknown there is nothing to compare.
        return Cost(gpu_s, money, full_gpu_s, money)
    return Cost(gpu_s, money, full_gpu_s, full_gpu_s * spec.gpu_hour / 3600)


def _full_precision(group: Group, decision: Decision) -> tuple[Variant, Candidate] | None:
    best: tuple[Variant, Candidate] | None = None
    for candidate in decision.candidates:
        # The reference's threshold is 1 by definition; another precision's may be, but its rank is lower.
        variant = group.variants.get(candidate.variant) if candidate.threshold >= 1.0 and candidate.live else None
        if variant is not None and not variant.spec.last_resort and (best is None or variant.rank > best[0].rank):
            best = variant, candidate
    return best


__all__ = ["Cost", "cost_of"]

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
from router.state import Variant


class Cost(NamedTuple):
    """Cost of one answer, and of the same answer at full precision."""

    gpu_s: float = 0.0
    """GPU-seconds: the request's share of its replica's time, times the GPUs that the replica holds."""
    money: float = 0.0
    """In the configured currency; 0 where no price is known."""
    full_gpu_s: float = 0.0
    """GPU-seconds that the group's highest precision would have taken; `gpu_s` where nothing was predicted."""
    full_money: float = 0.0


def cost_of(outcome: Outcome, chosen: Candidate | None, gpu_hour: float | None) -> Cost:
    """Return what the answer cost; nothing for a hosted model, which holds no GPU of ours.

    `gpu_hour`: price of one GPU for an hour where the variant names none.
    """
    variant, group, decision = outcome.variant, outcome.group, outcome.decision
    if variant is None or group is None or decision is None or variant.spec.kind == "litellm" or not outcome.sent_up:
        return Cost()
    gpu_s = max(0.0, outcome.ended - outcome.sent_up) / max(1.0, outcome.running) * variant.spec.gpus
    price = _price(variant, gpu_hour)
    money = gpu_s * (price or 0.0) / 3600
    full = _full_precision(decision)
    reference = group.variants.get(full.variant) if full is not None else None
    if full is None or reference is None or reference is variant or chosen is None or chosen.e2e_s <= 0.0:
        return Cost(gpu_s, money, gpu_s, money)
    full_gpu_s = gpu_s / variant.spec.gpus * reference.spec.gpus * full.e2e_s / chosen.e2e_s
    full_price = _price(reference, gpu_hour)
    if price is None or full_price is None:
        # With one price unknown there is nothing to compare.
        return Cost(gpu_s, money, full_gpu_s, money)
    return Cost(gpu_s, money, full_gpu_s, full_gpu_s * full_price / 3600)


def _price(variant: Variant, gpu_hour: float | None) -> float | None:
    return gpu_hour if variant.spec.gpu_hour is None else variant.spec.gpu_hour


def _full_precision(decision: Decision) -> Candidate | None:
    """Return the most precise regular variant, where it was live and its time predicted."""
    regular = [c for c in decision.candidates if not c.last_resort]
    best = max(regular, key=lambda c: c.rank, default=None)
    return best if best is not None and best.live and best.e2e_s > 0.0 else None


__all__ = ["Cost", "cost_of"]

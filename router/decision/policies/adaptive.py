"""The default policy: the cheapest variant, as measured now, that answers well and in time."""

from __future__ import annotations

from router.decision.candidates import eligible, judge
from router.decision.types import Candidate, Decision, Inputs, Reason, VariantState

Pair = tuple[VariantState, Candidate]


def decide(inputs: Inputs) -> Decision:
    """Choose among the variants whose risk is allowed and whose latency meets the scenario; else what gives way, gives way.

    A pure function: equal inputs give an equal decision.
    """
    return choose(inputs, judge(inputs))


def choose(inputs: Inputs, candidates: tuple[Candidate, ...]) -> Decision:
    """Choose among variants that were judged."""
    if inputs.request.pin is not None:
        return _pinned(inputs, candidates)
    pool, too_long = eligible(inputs, candidates)
    if not pool:
        bounded = inputs.request.max_risk is not None and any(c.live for c in candidates)
        return _decision(inputs, candidates, None, "max_risk_unavailable" if bounded else "none_live")
    if too_long:
        allowed = [p for p in pool if p[1].allowed]
        return _decision(inputs, candidates, _cheapest(allowed) if allowed else _highest(pool), "too_long_for_all")
    if all(v.last_resort for v, _ in pool):
        return _decision(inputs, candidates, _cheapest(pool), "last_resort")
    if inputs.scenario.refuses and not any(c.in_time for _, c in pool):
        return _decision(inputs, candidates, None, "overloaded")
    choice, reason = _pick(inputs, pool)
    return _decision(inputs, candidates, choice, reason)


def _pick(inputs: Inputs, pool: list[Pair]) -> tuple[Pair, Reason]:
    scenario = inputs.scenario
    both = [p for p in pool if p[1].allowed and p[1].in_time]
    if both:
        pick = _lowest if scenario.prefer == "lowest_precision" else _cheapest
        return pick(both), "within_limits"
    if scenario.gives_way == "quality":
        in_time = [p for p in pool if p[1].in_time]
        if in_time:
            return _highest(in_time), "quality_gave_way"
        return _fastest(pool), "latency_missed"
    allowed = [p for p in pool if p[1].allowed]
    if allowed:
        return _cheapest(allowed), "speed_gave_way"
    return _highest(pool), "only_lower_precision_live"


def _cheapest(pairs: list[Pair]) -> Pair:
    return min(pairs, key=lambda p: (p[1].cost, p[0].rank, p[0].name))


def _lowest(pairs: list[Pair]) -> Pair:
    return min(pairs, key=lambda p: (p[0].rank, p[1].cost, p[0].name))


def _highest(pairs: list[Pair]) -> Pair:
    return min(pairs, key=lambda p: (-p[0].rank, p[1].cost, p[0].name))


def _fastest(pairs: list[Pair]) -> Pair:
    return min(pairs, key=lambda p: (p[1].e2e_s, p[1].ttft_s, -p[0].rank, p[0].name))


def _pinned(inputs: Inputs, candidates: tuple[Candidate, ...]) -> Decision:
    for pair in zip(inputs.variants, candidates, strict=True):
        if pair[0].name == inputs.request.pin:
            bound = inputs.request.max_risk
            if bound is not None and pair[1].risk > bound:
                return _decision(inputs, candidates, None, "max_risk_unavailable")
            return _decision(
                inputs, candidates, pair if pair[1].live else None, "pinned" if pair[1].live else "pinned_unavailable"
            )
    return _decision(inputs, candidates, None, "pinned_unavailable")


def _decision(inputs: Inputs, candidates: tuple[Candidate, ...], choice: Pair | None, reason: Reason) -> Decision:
    name, risk, threshold = (choice[0].name, choice[1].risk, choice[1].threshold) if choice else (None, 0.0, 0.0)
    scenario, thresholds = inputs.scenario.name, inputs.thresholds
    return Decision(
        name, reason, risk, threshold, scenario, inputs.version, candidates, 1.0, (), False, inputs.arm, thresholds
    )

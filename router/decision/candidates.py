"""Judging each variant for one request: allowed by risk, in time, fitting, and at which cost. Pure functions."""

from __future__ import annotations

import math

from router.decision.types import FULL_PRECISIONS, Candidate, Inputs, Predicted, RequestFacts, Speed, VariantState


def predict(speed: Speed | None, prompt_tokens: int, output_tokens: int) -> tuple[float, float]:
    """Return (TTFT, whole answer) in seconds.

    TTFT = queue + prefill base + prefill per token * prompt tokens; each further token takes one ITL.
    Without a measurement both are 0.
    """
    if speed is None:
        return 0.0, 0.0
    ttft = speed.queue_s + speed.prefill_base_s + speed.prefill_per_token_s * prompt_tokens
    e2e = ttft + speed.itl_s * max(0, output_tokens - 1)
    # A NaN would make "cheapest" depend on the order of the variants.
    return (ttft if ttft == ttft else math.inf), (e2e if e2e == e2e else math.inf)


def fits(variant: VariantState, request: RequestFacts) -> bool:
    """Return False when the request certainly exceeds the variant's context length."""
    limit = variant.max_model_len
    if limit is None:
        return True
    return request.least_prompt_tokens < limit and (request.max_tokens is None or request.max_tokens <= limit)


def judge(inputs: Inputs) -> tuple[Candidate, ...]:
    """Return a candidate per variant, in the order of `inputs.variants`.

    The group's highest precision is the reference: its risk is 0 by definition. A precision is allowed when its risk,
    or that of a lower precision, is within the threshold: so the allowed precisions reach from some lowest one up to
    the reference, and raising any threshold can only add ones that are no higher than those.
    """
    request, (_, ttft_limit, e2e_limit, *_) = inputs.request, inputs.scenario
    ranks = [v.rank for v in inputs.variants if not v.last_resort] or [v.rank for v in inputs.variants]
    reference = max(ranks, default=0.0)
    lowest, judged = reference, []
    for v in inputs.variants:
        # Written for speed, as all here: every request comes by.
        risk, threshold = (0.0, 1.0) if v.rank >= reference else (_risk(inputs, v), _threshold(inputs, v))
        judged.append((v, risk, threshold))
        if risk <= threshold and v.rank < lowest and (not v.last_resort or len(ranks) == len(inputs.variants)):
            lowest = v.rank
    found = []
    for v, risk, threshold in judged:
        ttft_s, e2e_s, cost = v.predicted or _predicted(v, request)
        in_time = (ttft_limit is None or ttft_s <= ttft_limit) and (
            e2e_limit is None or _long(ttft_s, e2e_s, request) <= e2e_limit
        )
        # Of two precisions of one rank, one may be within its threshold and the other not.
        allowed = v.rank > lowest or risk <= threshold
        found.append(
            Candidate(
                v.name,
                v.precision,
                v.live,
                risk,
                threshold,
                allowed,
                in_time,
                fits(v, request),
                ttft_s,
                e2e_s,
                cost,
                v.rank,
                v.last_resort,
            )
        )
    return tuple(found)


def _predicted(variant: VariantState, request: RequestFacts) -> Predicted:
    ttft_s, e2e_s = predict(variant.speed, request.prompt_tokens, request.output_tokens)
    cost = variant.price * e2e_s if e2e_s else 0.0
    return Predicted(ttft_s, e2e_s, cost if cost == cost else math.inf)


def _long(ttft_s: float, e2e_s: float, request: RequestFacts) -> float:
    """Return the time of a long answer: one of which the mean is in time misses its target as often as not."""
    further = request.output_tokens - 1
    if request.long_output_tokens <= request.output_tokens or further <= 0:
        return e2e_s
    return ttft_s + (e2e_s - ttft_s) * ((request.long_output_tokens - 1) / further)


def _risk(inputs: Inputs, variant: VariantState) -> float:
    # What a broken artefact leaves out, or says as NaN, counts as the worst; full precisions carry no risk.
    precision = variant.precision
    value = inputs.risks.get(precision, 0.0 if precision in FULL_PRECISIONS else 1.0)
    return value if 0.0 <= value <= 1.0 else 0.0 if value < 0.0 else 1.0


def _threshold(inputs: Inputs, variant: VariantState) -> float:
    value = inputs.thresholds.get(variant.precision, 0.0)
    return value if 0.0 <= value <= 1.0 else 1.0 if value > 1.0 else 0.0


def eligible(inputs: Inputs, candidates: tuple[Candidate, ...]) -> tuple[list[tuple[VariantState, Candidate]], bool]:
    """Return the variants that may be chosen from, and whether none of them fits the request.

    These are the live ones within the client's hard bound on risk that fit; when none fits, the live ones with the
    longest context, whose own error then reaches the client. Last resorts count only when no other is left.
    """
    bound = inputs.request.max_risk
    live = [
        (v, c)
        for v, c in zip(inputs.variants, candidates, strict=True)
        if c.live and (bound is None or c.risk <= bound)
    ]
    pool = [p for p in live if not p[0].last_resort and p[1].fits] or [p for p in live if p[1].fits]
    if pool or not live:
        return pool, False
    regular = [p for p in live if not p[0].last_resort] or live
    longest = max(v.max_model_len or 0 for v, _ in regular)
    return [p for p in regular if (p[0].max_model_len or 0) == longest], True

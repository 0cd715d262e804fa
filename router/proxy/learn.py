"""Feeding a finished request back into the estimates of its replica, variant and group."""

from __future__ import annotations

from router.proxy.outcome import Outcome
from router.state import Replica

_ENOUGH_TOKENS = 8
_STALE_S = 10.0


def learn(outcome: Outcome, now: float) -> None:
    """Update speed, traffic windows and lengths from one answered request; failures teach nothing here."""
    variant, replica, usage = outcome.variant, outcome.replica, outcome.usage
    if not outcome.ok or variant is None or replica is None or outcome.group is None or not outcome.endpoint.generates:
        return
    traffic = variant.traffic
    traffic.requests_60s.add(now, 1.0)
    service = outcome.ended - outcome.sent_up
    if usage is None:
        return
    tokens = usage.completion_tokens
    traffic.tokens_10s.add(now, tokens)
    traffic.tokens_60s.add(now, tokens)
    if outcome.sequences > 1:
        # Several answers at once: their tokens came side by side, so their times say nothing of one answer's.
        return
    outcome.group.learn_lengths(outcome.units, usage.prompt_tokens, tokens)
    estimator = replica.estimator
    replica.observed_at = now
    if outcome.first_token_at is not None:
        ttft = outcome.first_token_at - outcome.sent_up
        traffic.ttft_60s.add(now, ttft)
        if not outcome.queued:
            estimator.observe_prefill(usage.prompt_tokens + outcome.ahead, ttft)
        itl = outcome.itl_s
        if itl is not None:
            traffic.itl_60s.add(now, itl)
            estimator.observe_decode(_together(outcome, replica, now), itl, _meanwhile(outcome, replica, now, tokens))
            service = itl * tokens
    elif tokens >= _ENOUGH_TOKENS and not outcome.queued:
        # A whole answer hides its first token: take the predicted one off.
        speed = estimator.speed(outcome.running, 0.0)
        ahead = usage.prompt_tokens + outcome.ahead
        ttft = speed.prefill_base_s + speed.prefill_per_token_s * ahead if speed else 0.0
        if service > ttft:
            itl, prompts = (service - ttft) / (tokens - 1), _meanwhile(outcome, replica, now, tokens)
            estimator.observe_decode(_together(outcome, replica, now), itl, prompts)
        else:
            # Its first token alone was foretold to take longer: where nothing streams, only this mends that.
            estimator.observe_prefill(ahead, service / 2)
    estimator.observe_service(service)


def _together(outcome: Outcome, replica: Replica, now: float) -> float:
    """Return how many requests ran together over this one's life: the mean of its beginning and its end."""
    return (outcome.running + sum(replica.load(now, _STALE_S)) + 1.0) / 2.0


def _meanwhile(outcome: Outcome, replica: Replica, now: float, tokens: int) -> float:
    """Return the prompt tokens of others that came meanwhile, for each token of the answer after its first."""
    return replica.prompts.since(outcome.mark, now) / (tokens - 1)

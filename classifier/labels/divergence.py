"""How much less likely full precision's answer is under the variant, per token (teacher-forced)."""

from __future__ import annotations

from math import exp

from classifier.labels.base import Comparison, Loss

LIMIT = 0.1
"""Mean log-ratio above which an answer counts as worse, nats per token: full precision's tokens are a tenth less likely."""


def mean_log_ratio(pair: Comparison) -> float | None:
    """Return the mean of `log p_full - log p_variant` over full precision's tokens, nats; None: not scored.

    Over sampled answers its expectation is the Kullback-Leibler divergence per token (Monte Carlo estimate); over a greedy
    answer it is that ratio along the likeliest tokens, and may be below 0.
    """
    if pair.logprobs is None or not pair.full_logprobs or len(pair.logprobs) != len(pair.full_logprobs):
        return None
    pairs = zip(pair.full_logprobs, pair.logprobs, strict=True)
    return sum(full - own for full, own in pairs) / len(pair.full_logprobs)


def divergence(pair: Comparison) -> Loss | None:
    """Return the divergence: worse above `LIMIT`; quality is the geometric mean of the probability ratio, at most 1."""
    ratio = mean_log_ratio(pair)
    if ratio is None:
        return None
    return Loss(1.0, exp(-max(ratio, 0.0)), ratio > LIMIT, ratio)

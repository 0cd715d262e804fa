"""Learning a replica's speed from the answers it gives. No clock, no I/O: a caller feeds observations in."""

from __future__ import annotations

import math

from router.decision.types import Speed

_LEAST = 0.05
"""Least share of its time that a replica is taken to have for answers, whatever prompts come."""


class DecayingLine:
    """y = a + b x by exponentially weighted least squares, with a, b >= 0.

    While all x are alike the slope cannot be known: `slope_share` says which part of the mean it then explains, and
    carries the weight of one observation a fifth of the mean x away from it (a ridge towards that slope).
    """

    __slots__ = ("_decay", "_fit", "_share", "_sw", "_sx", "_sxx", "_sxy", "_sy")

    def __init__(self, *, slope_share: float, decay: float = 0.96) -> None:
        self._decay = decay
        self._share = slope_share
        self._fit: tuple[float, float] | None = (0.0, 0.0)
        self._sw = self._sx = self._sy = self._sxx = self._sxy = 0.0

    @property
    def weight(self) -> float:
        """Effective number of observations."""
        return self._sw

    def add(self, x: float, y: float) -> None:
        """Take in one observation; older ones lose weight."""
        d = self._decay
        self._fit = None
        self._sw = self._sw * d + 1.0
        self._sx = self._sx * d + x
        self._sy = self._sy * d + y
        self._sxx = self._sxx * d + x * x
        self._sxy = self._sxy * d + x * y

    def fit(self) -> tuple[float, float]:
        """Return (a, b); (0, 0) without observations."""
        if self._fit is None:
            self._fit = self._solve()
        return self._fit

    def _solve(self) -> tuple[float, float]:
        mean_x, mean_y = self._sx / self._sw, self._sy / self._sw
        if mean_x <= 0.0:
            return max(0.0, mean_y), 0.0
        spread = max(0.0, self._sxx / self._sw - mean_x * mean_x)
        joint = self._sxy / self._sw - mean_x * mean_y
        prior, ridge = self._share * mean_y / mean_x, (0.2 * mean_x) ** 2 / self._sw
        slope = min(max(0.0, (joint + ridge * prior) / (spread + ridge)), mean_y / mean_x)
        return max(0.0, mean_y - slope * mean_x), slope


class SpeedEstimator:
    """Prefill, decode and queue of one replica.

    Prefill: TTFT over the prompt tokens that had to be computed, its own and those ahead, from requests that did not
    queue. Decode: time between tokens, less what prompts of others took meanwhile, over the number of requests that ran
    together (the batch's cost). Queue: by Little's law, waiting requests times the mean time one holds its place, over
    the places (J. Little, 1961).

    A second of a replica is spent on steps and on prompts: 1 = steps/s * (a + b * running) + prompt tokens/s * p. So the
    time between tokens, 1 / (steps/s), is (a + b * running) / (1 - p * prompt tokens/s): it follows the load at once,
    where answers that end tell of the load they met.
    """

    __slots__ = ("_decay", "_decode", "_prefill", "_service_s", "_service_weight")

    def __init__(self) -> None:
        self._prefill = DecayingLine(slope_share=0.3)
        self._decode = DecayingLine(slope_share=0.05)
        self._decay = 0.95
        self._service_s = 0.0
        self._service_weight = 0.0

    @property
    def measured(self) -> bool:
        """Whether anything was observed."""
        return self._prefill.weight > 0.0 or self._decode.weight > 0.0

    @property
    def per_token_s(self) -> float:
        """Seconds of the replica that one prompt token takes."""
        return self._prefill.fit()[1]

    def observe_prefill(self, prompt_tokens: float, ttft_s: float) -> None:
        """Take in a first token of a request that found no queue; `prompt_tokens`: its own and those ahead of it."""
        self._prefill.add(float(max(1, prompt_tokens)), ttft_s)

    def observe_decode(self, running: float, itl_s: float, prompts: float = 0.0) -> None:
        """Take in the mean time between tokens of one answer, with `running` requests together.

        `prompts`: prompt tokens of others that came meanwhile, for each token of the answer.
        """
        self._decode.add(max(1.0, running), max(itl_s * _LEAST, itl_s - prompts * self.per_token_s))

    def observe_service(self, seconds: float) -> None:
        """Take in how long one request held its place."""
        self._service_s = self._service_s * self._decay + seconds
        self._service_weight = self._service_weight * self._decay + 1.0

    def speed(self, running: float, waiting: float, ahead: float = 0.0, prompts: float = 0.0) -> Speed | None:
        """Return what one more request would see, or None before any observation.

        `ahead`: prompt tokens to be computed before its own; `prompts`: prompt tokens/s that come.
        """
        if not self.measured:
            return None
        base, per_token = self._prefill.fit()
        itl_base, itl_slope = self._decode.fit()
        service = self._service_s / self._service_weight if self._service_weight else 0.0
        queue = waiting * service / max(1.0, running) if waiting > 0.0 else 0.0
        free = max(_LEAST, 1.0 - prompts * per_token)
        itl = (itl_base + itl_slope * (running + 1.0)) / free
        return Speed(queue + ahead * per_token, base, per_token, itl)


def relaxed(speed: Speed, baseline: Speed, age_s: float, half_life_s: float = 30.0) -> Speed:
    """Return a speed whose bad memories fade: what is slower than `baseline` halves its excess every `half_life_s`.

    A replica that was slow once gets no more requests, and so no chance to show that it isn't any longer; without this
    it would never be chosen again. The queue is left alone: it is read live.
    """
    if (
        speed.prefill_base_s <= baseline.prefill_base_s
        and speed.prefill_per_token_s <= baseline.prefill_per_token_s
        and speed.itl_s <= baseline.itl_s
    ):
        return speed
    keep = math.exp(-math.log(2.0) * max(0.0, age_s) / half_life_s)

    def fade(value: float, usual: float) -> float:
        return usual + (value - usual) * keep if value > usual else value

    return Speed(
        speed.queue_s,
        fade(speed.prefill_base_s, baseline.prefill_base_s),
        fade(speed.prefill_per_token_s, baseline.prefill_per_token_s),
        fade(speed.itl_s, baseline.itl_s),
    )

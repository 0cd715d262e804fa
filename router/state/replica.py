"""One replica as a worker sees it: its connections, its load, its speed, and whether it may be used."""

from __future__ import annotations

import asyncio
import math

from backends.wire import Pool, VllmMetrics
from router.config.problems import masked
from router.config.schema import BreakerConfig
from router.decision.types import Speed
from router.state.breaker import Breaker
from router.state.estimator import SpeedEstimator, relaxed
from router.state.prompts import Mark, Prompts

_COOL_DOWN_S = 1.0
_COOL_DOWN_MAX_S = 300.0
_FULL_CACHE = 0.9
"""Share of the KV cache in use from which on a prompt may find no room."""


class Replica:
    """Mutable state of one replica; every change happens on the worker's event loop."""

    def __init__(self, index: int, url: str, headers: list[tuple[bytes, bytes]], breaker: BreakerConfig) -> None:
        self.index = index
        self.url = masked(url)
        """For people: without a password."""
        self.headers = headers
        """Sent with every request: the server's own key, if any."""
        self.pool = Pool(url)
        self.breaker = Breaker(breaker.failures, breaker.open_s, breaker.open_max_s)
        self.estimator = SpeedEstimator()
        self.prompts = Prompts()
        self.baseline: Speed | None = None
        """Speed of an idle replica, as the readiness probe saw it."""
        self.observed_at = -math.inf
        self.ready = False
        self.ever_ready = False
        self.draining = False
        self.inflight = 0
        self.requests = 0
        self.failures = 0
        self.cool_until = 0.0
        self.max_model_len: int | None = None
        self.metrics: VllmMetrics | None = None
        self.metrics_at = -math.inf
        self.inflight_at_metrics = 0
        self._places = 0.0
        """Most requests that the server was seen to run at once."""
        self._free = 0.0
        """Places that were free when the figures were read."""
        self.last_byte_at = -math.inf
        self.last_error: str | None = None
        self.changed = asyncio.Event()
        """Set when the monitor should look at once."""

    def available(self, now: float) -> bool:
        """Return whether a request may be sent here now."""
        return self.ready and not self.draining and now >= self.cool_until

    def load(self, now: float, stale_s: float) -> tuple[float, float]:
        """Return (running, waiting) requests: the server's own figures, moved on by what was sent since.

        Only those wait that wait for a place. Who finds a free one runs as soon as the prompts ahead are computed, long
        before the figures are read again.
        """
        own = float(self.inflight)
        metrics = self.metrics
        if metrics is None or now - self.metrics_at > stale_s:
            return own, 0.0
        since = own - self.inflight_at_metrics
        if metrics.waiting > 0.0 and metrics.waiting + since > self._free:
            # What came since waits as well, what ended since made room.
            return max(metrics.running + self._free, 1.0), metrics.waiting + since - self._free
        return max(own, metrics.running + metrics.waiting + since, 0.0), 0.0

    def send(self, now: float, prompt_tokens: float) -> tuple[float, Mark]:
        """Count a request that is sent now; return the prompt tokens ahead of it, and the moment for `Prompts.since`."""
        self.inflight += 1
        ahead = self.prompts.send(now, prompt_tokens, self.estimator.per_token_s)
        return ahead, self.prompts.mark(now, ahead + prompt_tokens)

    def end(self, now: float, prompt_tokens: float, sent: float, mark: Mark, *, computed: bool) -> None:
        """Count a request that has ended; `computed`: its prompt was, as a token of its answer showed."""
        self.inflight -= 1
        if computed:
            self.prompts.computed(now, prompt_tokens, mark, self.estimator.per_token_s)
        else:
            self.prompts.take_back(now, prompt_tokens, sent, self.estimator.per_token_s)

    def read(self, now: float, metrics: VllmMetrics) -> None:
        """Take in what the server says of itself."""
        if self.metrics is not None and metrics.prompt_tokens < self.metrics.prompt_tokens:
            # It began anew, perhaps with other places.
            self._places = 0.0
        # One that runs more than ever before has just shown that it had places; one that stops there has no more.
        self._free = self._places - metrics.running if metrics.running <= self._places else math.inf
        if metrics.kv_cache_usage >= _FULL_CACHE:
            self._free = 0.0
        self._places = max(self._places, metrics.running)
        self.metrics, self.metrics_at, self.inflight_at_metrics = metrics, now, self.inflight
        waiting = min(metrics.waiting, self._free)
        self.prompts.count(now, metrics.prompt_tokens, self.estimator.per_token_s, waiting)

    def speed(self, now: float, stale_s: float) -> Speed | None:
        """Return what one more request would see here."""
        running, waiting = self.load(now, stale_s)
        prompts, estimator = self.prompts, self.estimator
        ahead = prompts.backlog(now, estimator.per_token_s)
        speed = estimator.speed(running, waiting, ahead, prompts.rate(now))
        if speed is None or self.baseline is None or self.inflight > 0:
            # While an own request runs, its end will tell.
            return speed
        return relaxed(speed, self.baseline, now - self.observed_at)

    def success(self) -> None:
        """Note an answer without error. A late one, to a request sent before the breaker opened, does not close it."""
        if self.ready:
            self.breaker.success()

    def failure(self, now: float, why: str) -> bool:
        """Note a failure; return True when it took the replica out."""
        self.failures += 1
        self.last_error = why
        opened = self.breaker.failure(now)
        if opened:
            self.ready = False
            self.changed.set()
        return opened

    def cool_down(self, now: float, retry_after_s: float | None) -> None:
        """Leave an overloaded replica alone, for as long as it asked for."""
        pause = _COOL_DOWN_S if retry_after_s is None else min(max(retry_after_s, 0.0), _COOL_DOWN_MAX_S)
        self.cool_until = max(self.cool_until, now + pause)

    def mark_ready(self, now: float) -> None:
        """Put the replica (back) to use after a real completion."""
        self.breaker.success()
        self.ready = True
        self.ever_ready = True
        self.last_error = None
        self.last_byte_at = self.observed_at = now
        self.baseline = self.baseline or self.estimator.speed(0.0, 0.0)

"""What is told of each request: metrics, one event, one log line when it failed."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Mapping
from typing import Any, Protocol

from router.config.schema import Config
from router.decision import Decision
from router.feedback.entry import facts_of
from router.proxy.deciding import Question
from router.proxy.outcome import Outcome
from router.proxy.surface import ROUTE
from router.telemetry.drift import DriftWatch
from router.telemetry.logs import say
from router.telemetry.metrics import Metrics
from router.telemetry.sampler import Sampler
from router.telemetry.tracing import Tracing


class Sink(Protocol):
    """Takes events without blocking and without raising."""

    def put(self, event: Mapping[str, object]) -> None:
        """Take one event."""

    def put_index(self, event: Mapping[str, object]) -> None:
        """Take of one event only what feedback finds the request by."""


class Telemetry:
    """One worker's telemetry."""

    def __init__(
        self,
        metrics: Metrics,
        sink: Sink | None,
        log: logging.Logger,
        events_per_s: float = math.inf,
        *,
        tracing: Tracing | None = None,
        access_log: bool = False,
        drift: DriftWatch | None = None,
    ) -> None:
        self.metrics = metrics
        self.log = log
        self.tracing = tracing
        self.drift = drift
        self.access_log = access_log
        """Whether each request gets a log line."""
        self._sink = sink
        self._sampler = Sampler(events_per_s)
        self.events_left_out = 0
        """Events that were not made because there were too many."""

    def follow(self, config: Config) -> None:
        """Take over what a changed configuration says of events, log lines and prices."""
        self._sampler.per_s = config.events.max_per_s
        self.access_log = config.logging.access
        self.metrics.set_gpu_hour(config.cost.gpu_hour)

    def retried(self, outcome: Outcome, why: str) -> None:
        """Tell of an attempt that failed and may be taken over by another replica."""
        self.metrics.retried(outcome)
        replica = outcome.replica.url if outcome.replica is not None else "none"
        say(self.log, logging.WARNING, "attempt failed", id=outcome.request_id, replica=replica, cause=repr(why))

    def log_end(self, outcome: Outcome) -> None:
        """Write the log lines of an ended request: never its prompt, never a key."""
        if outcome.error is not None and outcome.error != "client_left":
            self._failed(outcome)
        if self.access_log:
            self._access(outcome)

    def finished(self, outcome: Outcome) -> None:
        """Count an ended request, end its spans, and keep its event; beside `log_end`, and some moments later."""
        self.metrics.finished(outcome)
        if outcome.trace is not None:
            outcome.trace.finish(outcome)
        if self._sink is not None and outcome.decision is not None and outcome.endpoint is not ROUTE:
            self._put(self._sink, outcome)

    def _failed(self, outcome: Outcome) -> None:
        level = logging.INFO if 400 <= outcome.status < 500 else logging.WARNING
        say(
            self.log,
            level,
            "request failed",
            id=outcome.request_id,
            endpoint=outcome.endpoint.name,
            group=outcome.group.name if outcome.group else "none",
            variant=outcome.variant.name if outcome.variant else "none",
            status=outcome.status,
            error=outcome.error,
            attempts=outcome.attempts,
        )

    def _access(self, outcome: Outcome) -> None:
        decision, usage = outcome.decision, outcome.usage
        say(
            self.log,
            logging.INFO,
            "request",
            id=outcome.request_id,
            endpoint=outcome.endpoint.name,
            group=outcome.group.name if outcome.group else "none",
            variant=outcome.variant.name if outcome.variant else "none",
            scenario=decision.scenario if decision else "none",
            reason=decision.reason if decision else "none",
            cache=outcome.cache,
            status=outcome.status,
            attempts=outcome.attempts,
            prompt_tokens=usage.prompt_tokens if usage else 0,
            completion_tokens=usage.completion_tokens if usage else 0,
            ttft_ms=_ms(outcome.ttft_s),
            e2e_ms=_ms(outcome.ended - outcome.began),
        )

    def _put(self, sink: Sink, outcome: Outcome) -> None:
        kept = self._sampler.probability(outcome.ended)
        if kept < 1.0 and random.random() >= kept:
            self.events_left_out += 1
            # Feedback may be given on any answer, recorded or not.
            sink.put_index({**facts_of(outcome), "status": outcome.status})
            return
        event = event_of(outcome)
        if kept < 1.0:
            event["sampled"] = kept
        sink.put(event)


def event_of(outcome: Outcome) -> dict[str, object]:
    """Return the event of one decided request: the decision with its propensity, and the outcome; times in ms."""
    decision, usage = outcome.decision, outcome.usage
    event: dict[str, Any] = {
        "id": outcome.request_id,
        "t": outcome.at or round(time.time(), 3),
        "endpoint": outcome.endpoint.name,
        "group": outcome.group.name if outcome.group else None,
        "variant": outcome.variant.name if outcome.variant else None,
        "replica": outcome.replica.index if outcome.replica else None,
        "stream": outcome.stream,
        "attempts": outcome.attempts,
        "status": outcome.status,
        "error": outcome.error,
        "prompt_tokens": usage.prompt_tokens if usage else None,
        "completion_tokens": usage.completion_tokens if usage else None,
        "ttft_ms": _ms(outcome.ttft_s),
        "itl_ms": _ms(outcome.itl_s),
        "e2e_ms": _ms(outcome.ended - outcome.began),
        "risks": dict(outcome.risks),
    }
    if outcome.tenant is not None:
        event["tenant"] = outcome.tenant
    if outcome.cache_key is not None:
        event["cache"] = outcome.cache
        event["cache_key"] = outcome.cache_key
    if outcome.cache == "hit":
        event["cache_age_s"] = outcome.cache_age_s
        event["cache_likeness"] = outcome.cache_likeness
    if outcome.cache_check is not None:
        event["cache_check"] = outcome.cache_check
    if decision is not None:
        event["generates"] = outcome.endpoint.generates
        event.update(_decided(decision, outcome.question))
    return event


def _decided(decision: Decision, question: Question | None) -> dict[str, Any]:
    """Return what the decision was made of, in full figures: made again from these, it comes out the same."""
    cached = decision.reason == "cached"
    propensities = decision.propensities or (0.0,) * len(decision.candidates)
    found: dict[str, Any] = {
        "scenario": decision.scenario,
        "policy": decision.version,
        "arm": decision.arm,
        "reason": decision.reason,
        "explored": decision.explored,
        "propensity": None if cached else decision.propensity,
        "thresholds": dict(decision.thresholds),
        "candidates": [
            [
                c.variant,
                c.live,
                c.risk,
                c.threshold,
                c.ttft_s,
                c.e2e_s,
                c.precision,
                c.rank,
                c.fits,
                c.last_resort,
                c.cost,
                propensity,
            ]
            for c, propensity in zip(decision.candidates, propensities, strict=True)
        ],
    }
    if question is not None:
        if not all(c.fits for c in decision.candidates):
            # Only then may the choice depend on how long the contexts are.
            variants = question.target.group.variants
            found["max_model_lens"] = [
                variants[c.variant].max_model_len if c.variant in variants else None for c in decision.candidates
            ]
        facts, scenario, exploration = question.facts, question.target.scenario, question.exploration
        found["draw"], found["dice"] = question.draw, question.dice
        found["exploration"] = [exploration.share, exploration.max_risk]
        found["targets"] = [scenario.ttft_s, scenario.e2e_s, scenario.gives_way, scenario.prefer]
        found["request"] = list(facts)
    return found


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)

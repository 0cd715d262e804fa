"""Shadow pairs: a sampled request is answered by another precision too, off the hot path, and the two are compared.

What a lower precision answered is asked again at full precision; of what full precision answered a share is asked again
at a lower one, so that pairs exist on both sides. Neither question nor answers are kept, only the judge's verdict.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from backends.wire import Limits, Pool, UpstreamError
from classifier.models import base_score
from classifier.scoring import Trained
from router.cache.answers import checked
from router.cache.capture import Asked, Capture
from router.config.loop import ShadowConfig
from router.config.variant import base_url
from router.feedback.entry import facts_of, label_entry
from router.feedback.judges import JUDGES, Pair, Tools, Verdict
from router.feedback.metrics import FeedbackMetrics
from router.feedback.watch import Sample
from router.proxy.deciding import Question
from router.proxy.outcome import Outcome
from router.proxy.surface import Endpoint
from router.proxy.validation import output_limit
from router.state import Group, Replica, Variant

_KINDS = frozenset({"chat.completions", "completions"})
_MAX_ANSWER = 256 * 1024
"""Bytes of a plain answer that is compared."""
_MAX_REQUEST = 1024 * 1024
_TIMEOUT_S = 120.0
_STALE_S = 10.0
_PERSONAL = ("previous_response_id", "conversation", "background", "kv_transfer_params", "ec_transfer_params")


class Shadow:
    """Samples, asks and compares, for one worker; `write` takes labels and never waits."""

    def __init__(
        self,
        settings: ShadowConfig,
        share: float,
        tools: Tools,
        metrics: FeedbackMetrics,
        write: Callable[[Mapping[str, Any]], None],
        log: logging.Logger,
    ) -> None:
        self.follow(settings, share, tools)
        self.classifier_of: Callable[[str], Trained] | None = None
        """A group's classifier; None: nothing is kept to learn from."""
        self._metrics = metrics
        self._write = write
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()
        self._room, self._room_at = 1.0, time.monotonic()
        """Requests that may be drawn at the trial's share now, as of when."""
        self.drawn_on_trial = 0
        """Requests that were drawn at it."""

    def follow(self, settings: ShadowConfig, share: float, tools: Tools) -> None:
        """Take over changed settings for what is drawn and judged from now on."""
        self._settings = settings
        self._share = share
        self._judges = [(name, JUDGES[name](tools)) for name in settings.judges]

    @property
    def running(self) -> int:
        """Comparisons under way."""
        return len(self._tasks)

    def draw(
        self,
        endpoint: Endpoint,
        group: Group,
        question: Question | None,
        pin: str | None,
        body: Mapping[str, Any],
        path: bytes,
        size: int,
        capture: Capture | None,
    ) -> Sample | None:
        """Return a sample where this request is drawn and can be compared: one answer, not pinned, not personal."""
        if self._share <= 0.0 or pin is not None or endpoint.name not in _KINDS:
            return None
        share = self._chance(group, question)
        if random.random() >= share:
            return None
        if len(_regular(group)) < 2 or size > _MAX_REQUEST or any(body.get(name) is not None for name in _PERSONAL):
            return None
        if (body.get("n") or 1) != 1 or (body.get("best_of") or 1) != 1 or isinstance(body.get("prompt"), list):
            return None
        return Sample(body, path, endpoint.name, capture or Capture(_MAX_ANSWER), share)

    def _chance(self, group: Group, question: Question | None) -> float:
        """Return the probability with which a request is drawn: higher for a canary's and explored ones, up to a rate.

        It depends on chance and on earlier requests, never on this one's content.
        """
        if question is None or self._settings.trial_share <= self._share:
            return self._share
        on_trial = group.canary is not None and question.draw < group.canary.share
        if not on_trial and question.dice >= question.exploration.share:
            return self._share
        now, rate = time.monotonic(), self._settings.trial_per_s
        self._room = min(max(1.0, rate), self._room + (now - self._room_at) * rate)
        self._room_at = now
        if self._room < 1.0:
            return self._share
        self._room -= 1.0
        self.drawn_on_trial += 1
        return self._settings.trial_share

    def offer(self, sample: Sample, outcome: Outcome) -> None:
        """Compare a finished request, if there is room for that now; else it is let go and counted."""
        group, variant = outcome.group, outcome.variant
        if not outcome.ok or outcome.cache == "hit" or group is None or variant is None or variant.spec.last_resort:
            return
        if len(self._tasks) >= self._settings.max_running:
            self._let_go(group, "busy")
            return
        other, chance = self._other(group, variant)
        replica = self._with_room(other) if other is not None else None
        if other is None:
            return
        if replica is None:
            self._let_go(group, "no_room")
            return
        task = asyncio.create_task(
            self._compare(sample._replace(propensity=sample.propensity * chance), outcome, other, replica)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _other(self, group: Group, variant: Variant) -> tuple[Variant | None, float]:
        """Return the variant to ask as well, and the probability with which this one is taken."""
        regular = _regular(group)
        best = max(v.rank for v in regular)
        if variant.rank < best:
            return next(v for v in regular if v.rank == best), 1.0
        lower = [v for v in regular if v.rank < best]
        if not lower or random.random() >= self._settings.lower_share:
            return None, 0.0
        return random.choice(lower), self._settings.lower_share / len(lower)

    def _with_room(self, variant: Variant) -> Replica | None:
        now = time.monotonic()
        for replica in variant.usable(now):
            running, waiting = replica.load(now, _STALE_S)
            known = replica.metrics is not None and now - replica.metrics_at <= _STALE_S
            used = replica.metrics.kv_cache_usage if known and replica.metrics is not None else 0.0
            # A server that tells no figures has room when nothing of this worker runs there.
            if waiting == 0.0 and used < self._settings.max_load and (known or running == 0.0):
                return replica
        return None

    def _let_go(self, group: Group, reason: str) -> None:
        self._metrics.let_go.labels(group.name, reason).inc()

    async def _compare(self, sample: Sample, outcome: Outcome, other: Variant, replica: Replica) -> None:
        group, variant = outcome.group, outcome.variant
        assert group is not None
        assert variant is not None
        try:
            limited = output_limit(sample.body) is not None
            own = await sample.capture.answer(Asked(sample.kind, limited), variant.name, variant.spec.served_model, 0)
            if own is None or own.completion_tokens > self._settings.max_output_tokens:
                self._let_go(group, "no_answer")
                return
            answer = await self._ask(sample, outcome.request_id, other, replica)
            if answer is None:
                self._let_go(group, "no_answer")
                return
            mine, theirs = orjson.loads(own.body)["choices"][0], orjson.loads(answer)["choices"][0]
            lower_asked = other.rank < variant.rank
            pair = Pair(sample.body, theirs, mine) if lower_asked else Pair(sample.body, mine, theirs)
            judged = await self._judge(pair)
            if judged is None:
                self._metrics.pairs.labels(group.name, "none", "unclear").inc()
                return
            name, verdict = judged
            self._metrics.pairs.labels(group.name, name, _word(verdict)).inc()
            label = label_entry(
                facts_of(outcome),
                f"shadow:{name}",
                verdict.value,
                time.time(),
                reference=verdict.reference,
                shadow_propensity=sample.propensity,
                of=other.name if lower_asked else None,
                seen=self._seen(sample, outcome, other if lower_asked else variant),
            )
            self._write(label)
        except Exception:
            # Whatever a comparison meets, it is of no one's request; the log names it.
            self._let_go(group, "no_answer")
            self._log.exception("shadow: comparison failed: id=%s", outcome.request_id)

    def _seen(self, sample: Sample, outcome: Outcome, lower: Variant) -> dict[str, Any] | None:
        """Return the numbers of the request from which a classifier may learn: none of them tells what it said."""
        if self.classifier_of is None or outcome.group is None or not self._settings.features:
            return None
        precision = lower.spec.precision
        risk = outcome.risks.get(precision)
        if risk is None:
            # Of a full precision below another one nothing is foretold.
            return None
        own = self.classifier_of(outcome.group.name)
        features = own.features(sample.body)
        return {
            "by": own.artefact.version,
            "precision": precision,
            "risk": risk,
            "score": round(base_score(own.artefact.model, features), 6),
            "vector": [round(value, 5) for value in features.vector],
        }

    async def _judge(self, pair: Pair) -> tuple[str, Verdict] | None:
        for name, judge in self._judges:
            try:
                verdict = await judge(pair)
            except (OSError, UpstreamError, ValueError, LookupError, TypeError) as error:
                # A judge's server that is away or speaks otherwise: the next judge may tell.
                self._log.warning("shadow: judge %s failed: %s", name, type(error).__name__)
                continue
            if verdict is not None:
                return name, verdict
        return None

    async def _ask(self, sample: Sample, request_id: str, variant: Variant, replica: Replica) -> bytes | None:
        body = {k: v for k, v in sample.body.items() if k not in ("stream", "stream_options")}
        body["model"] = variant.spec.served_model
        if output_limit(body) is None:
            body["max_tokens"] = self._settings.max_output_tokens
        headers = [
            (b"content-type", b"application/json"),
            (b"x-request-id", f"{request_id}-shadow".encode()),
            *replica.headers,
        ]
        limits = Limits(2.0, _TIMEOUT_S, _TIMEOUT_S, _TIMEOUT_S)
        replica.inflight += 1
        try:
            connection = await replica.pool.request(b"POST", sample.path, headers, orjson.dumps(body), limits)
            try:
                answer = await connection.read_all(_MAX_ANSWER)
                status = connection.status
            finally:
                replica.pool.release(connection)
        except UpstreamError:
            return None
        finally:
            replica.inflight -= 1
        limited = output_limit(sample.body) is not None
        return answer if status == 200 and checked(answer, sample.kind, limited) is not None else None

    async def stop(self) -> None:
        """End what is under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _regular(group: Group) -> list[Variant]:
    return [v for v in group.variants.values() if not v.spec.last_resort]


def _word(verdict: Verdict) -> str:
    if verdict.value == verdict.reference:
        return "equal"
    return "better" if verdict.value > verdict.reference else "worse"


class Server:
    """A judge's server: JSON to it and back."""

    def __init__(self, url: str, key: str | None, timeout_s: float) -> None:
        self._pool = Pool(base_url(url))
        self._headers = [(b"content-type", b"application/json")]
        if key:
            self._headers.append((b"authorization", b"Bearer " + key.encode()))
        self._limits = Limits(min(2.0, timeout_s), timeout_s, timeout_s, timeout_s)

    async def post(self, path: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer's JSON. Raises UpstreamError, ValueError."""
        raw = orjson.dumps(payload)
        connection = await self._pool.request(b"POST", path.encode(), self._headers, raw, self._limits)
        try:
            body = await connection.read_all(4 * 1024 * 1024)
            if connection.status != 200:
                raise ValueError(f"HTTP {connection.status}")
        finally:
            self._pool.release(connection)
        found = orjson.loads(body)
        if not isinstance(found, dict):
            raise TypeError("not an object")
        return found

    def close(self) -> None:
        """Close the kept connections."""
        self._pool.close()

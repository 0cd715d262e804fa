"""Everything that learns of answers' quality, as one worker has it: statements, signals without words, shadow pairs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson
from prometheus_client import CollectorRegistry

from router.cache.capture import Capture
from router.config.runtime import Runtime
from router.config.schema import Config, EventsConfig
from router.feedback.implicit import Implicit
from router.feedback.inbox import Inbox
from router.feedback.index import RequestIndex
from router.feedback.judges import Tools
from router.feedback.metrics import FeedbackMetrics
from router.feedback.shadow import Server, Shadow
from router.feedback.statement import read_statement
from router.feedback.watch import Watch
from router.proxy.json_body import parse_body
from router.proxy.outcome import Outcome
from router.proxy.resolve import Target
from router.store.events import EventSink, SinkStats

MOST_BYTES = 64 * 1024
"""Longest body of `POST /v1/feedback`."""
_BUFFER = 1024
"""Labels of Bitgear's own that wait while Redis is away; more are dropped."""


class Quality:
    """One worker's part in this."""

    def __init__(
        self, runtime: Runtime, registry: CollectorRegistry, env: Mapping[str, str], log: logging.Logger
    ) -> None:
        config, redis = runtime.config, runtime.config.redis
        self._env = env
        self._has_redis = runtime.redis_url is not None
        password = env.get(redis.password_env) if redis.password_env else None
        self._inbox = Inbox(runtime.redis_url, config.feedback, timeout_s=redis.timeout_s, password=password)
        self.index = RequestIndex(config.feedback)
        """By which feedback finds its request; whoever writes events asks it."""
        # Bitgear's own labels are written beside the hot path, as events are.
        self._sink = EventSink(
            runtime.redis_url, _stream(config), timeout_s=redis.timeout_s, password=password, field="feedback"
        )
        self._metrics = FeedbackMetrics(registry)
        self._implicit = Implicit(self._regeneration_s(config))
        self._servers: list[Server] = []
        self._tools_now = self._tools(runtime)
        self.shadow = Shadow(config.shadow, self._share(config), self._tools_now, self._metrics, self._sink.put, log)
        self._made_of = _of_judges(runtime)

    def follow(self, runtime: Runtime) -> None:
        """Take over a changed configuration; comparisons under way end with what they began with."""
        config = runtime.config
        self._inbox.settings = self.index.settings = config.feedback
        self._sink.follow(_stream(config))
        self._implicit.within_s = self._regeneration_s(config)
        if self._made_of != (made_of := _of_judges(runtime)):
            self._made_of, last, self._servers = made_of, self._servers, []
            self._tools_now = self._tools(runtime)
            for server in last:
                server.close()
        self.shadow.follow(config.shadow, self._share(config), self._tools_now)

    def _regeneration_s(self, config: Config) -> float:
        return config.feedback.regeneration_s if self._has_redis else 0.0

    def _share(self, config: Config) -> float:
        return config.shadow.effective_share(config.tuning.mode) if self._has_redis else 0.0

    def _tools(self, runtime: Runtime) -> Tools:
        shadow = runtime.config.shadow
        tools = Tools(embedding_model=shadow.embedding_model or "", chat_model=shadow.judge_model or "")
        key = (self._env.get(shadow.judge_key_env) or None) if shadow.judge_key_env else None
        if shadow.embedding_url and shadow.embedding_model:
            tools = tools._replace(embed=self._server(shadow.embedding_url, key, shadow.judge_timeout_s).post)
        url = _judge_url(runtime)
        if url and shadow.judge_model:
            tools = tools._replace(chat=self._server(url, key, shadow.judge_timeout_s).post)
        return tools

    def _server(self, url: str, key: str | None, timeout_s: float) -> Server:
        server = Server(url, key, timeout_s)
        self._servers.append(server)
        return server

    def start(self) -> None:
        """Begin to write labels; Redis need not be there."""
        self._sink.start()

    async def stop(self) -> None:
        """End comparisons, write what is kept, close connections."""
        await self.shadow.stop()
        await self._sink.stop()
        await self._inbox.stop()
        for server in self._servers:
            server.close()

    def stats(self) -> SinkStats:
        """Counts of Bitgear's own labels."""
        return self._sink.stats()

    async def take(self, raw: bytes, tenant: str) -> bytes:
        """Take the body of `POST /v1/feedback`; return the answer's JSON. Raises ApiError."""
        statement = read_statement(parse_body(raw), self._inbox.settings.comment_chars)
        receipt = await self._inbox.take(statement, tenant)
        if receipt.changed:
            self._metrics.feedback.labels(receipt.group, receipt.kind).inc()
        return orjson.dumps(
            {
                "object": "feedback",
                "request_id": statement.request_id,
                "source": statement.source,
                "value": statement.value,
                "changed": receipt.changed,
                "count": receipt.times,
            }
        )

    def watch(
        self,
        outcome: Outcome,
        target: Target,
        body: Mapping[str, Any],
        path: bytes,
        raw: bytes,
        capture: Capture | None,
    ) -> Watch:
        """Look at a request before it is sent; `capture` is the cache's, if it has one."""
        sample = self.shadow.draw(
            outcome.endpoint, target.group, outcome.question, target.pin, body, path, len(raw), capture
        )
        return Watch(self._implicit.digest(outcome, body, raw), sample)

    def finished(self, outcome: Outcome, watch: Watch) -> None:
        """Look at it when it has ended. Never waits."""
        if self._has_redis:
            for label in self._implicit.labels(outcome, watch.digest):
                self._sink.put(label)
        if watch.sample is not None:
            self.shadow.offer(watch.sample, outcome)


def _stream(config: Config) -> EventsConfig:
    feedback = config.feedback
    return EventsConfig(stream=feedback.stream, max_length=feedback.max_length, buffer=_BUFFER)


def _judge_url(runtime: Runtime) -> str | None:
    shadow = runtime.config.shadow
    if shadow.judge_url is not None or shadow.judge_model is None:
        return shadow.judge_url
    # Without an address of its own the model is one of the hosted ones that the sidecar already reaches.
    hosted = next((v for v in runtime.variants if v.kind == "litellm"), None)
    return hosted.urls[0] if hosted is not None else None


def _of_judges(runtime: Runtime) -> tuple[object, ...]:
    """Return what the judges' connections are made of."""
    shadow = runtime.config.shadow
    embedding = shadow.embedding_url, shadow.embedding_model
    return *embedding, _judge_url(runtime), shadow.judge_model, shadow.judge_key_env, shadow.judge_timeout_s

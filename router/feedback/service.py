"""Everything that learns of answers' quality, as one worker has it: statements, signals without words, shadow pairs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson
from prometheus_client import CollectorRegistry

from router.cache.capture import Capture
from router.config.runtime import Runtime
from router.config.schema import EventsConfig
from router.feedback.implicit import Implicit
from router.feedback.inbox import Inbox
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
        self._settings = config.feedback
        password = env.get(redis.password_env) if redis.password_env else None
        self._inbox = Inbox(runtime.redis_url, config.feedback, timeout_s=redis.timeout_s, password=password)
        stream = EventsConfig(stream=config.feedback.stream, max_length=config.feedback.max_length, buffer=_BUFFER)
        # Bitgear's own labels are written beside the hot path, as events are.
        self._sink = EventSink(
            runtime.redis_url, stream, timeout_s=redis.timeout_s, password=password, field="feedback"
        )
        self._metrics = FeedbackMetrics(registry)
        self._implicit = Implicit(config.feedback.regeneration_s if runtime.redis_url else 0.0)
        self._early_stop = runtime.redis_url is not None
        self._servers: list[Server] = []
        share = config.shadow.effective_share(config.tuning.mode) if runtime.redis_url else 0.0
        tools = self._tools(runtime, env)
        self.shadow = Shadow(config.shadow, share, tools, self._metrics, self._sink.put, log)

    def _tools(self, runtime: Runtime, env: Mapping[str, str]) -> Tools:
        shadow = runtime.config.shadow
        tools = Tools(embedding_model=shadow.embedding_model or "", chat_model=shadow.judge_model or "")
        key = (env.get(shadow.judge_key_env) or None) if shadow.judge_key_env else None
        if shadow.embedding_url and shadow.embedding_model:
            tools = tools._replace(embed=self._server(shadow.embedding_url, key, shadow.judge_timeout_s).post)
        url, model = shadow.judge_url, shadow.judge_model
        if url is None and model is not None:
            # Without an address of its own the model is one of the hosted ones that the sidecar already reaches.
            hosted = next((v for v in runtime.variants if v.kind == "litellm"), None)
            url = hosted.urls[0] if hosted is not None else None
        if url and model:
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
        statement = read_statement(parse_body(raw), self._settings.comment_chars)
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
        if self._early_stop:
            for label in self._implicit.labels(outcome, watch.digest):
                self._sink.put(label)
        if watch.sample is not None:
            self.shadow.offer(watch.sample, outcome)

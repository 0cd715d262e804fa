"""Watching replicas: a real completion makes one ready, `/metrics` says its load, a half-open probe brings it back."""

from __future__ import annotations

import asyncio
import logging
import time

from backends.wire import Limits, UpstreamError, parse_vllm_metrics, probe
from backends.wire.probe import get
from router.config.schema import HealthConfig
from router.state.fleet import Fleet, Variant
from router.state.replica import Replica

_SILENT_S = 10.0
_METRICS_TIMEOUT_S = 2.0


class Monitor:
    """One task per replica; `start`, `follow` and `stop` on the worker's event loop."""

    def __init__(self, fleet: Fleet, health: HealthConfig, logger: logging.Logger) -> None:
        self._fleet = fleet
        self._health = health
        self._log = logger
        self._running = False
        self._tasks: dict[Replica, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Begin to watch every replica."""
        self._running = True
        self.follow(self._fleet, self._health)

    def follow(self, fleet: Fleet, health: HealthConfig) -> None:
        """Watch this fleet's replicas: those that stay go on being watched, the others no longer."""
        self._fleet, self._health = fleet, health
        if not self._running:
            return
        wanted = {replica: variant for variant in fleet.variants() for replica in variant.replicas}
        for replica in [r for r in self._tasks if r not in wanted]:
            self._tasks.pop(replica).cancel()
        for replica, variant in wanted.items():
            if replica not in self._tasks:
                self._tasks[replica] = asyncio.create_task(self._watch(variant, replica))

    async def stop(self) -> None:
        """End all watching."""
        self._running = False
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, variant: Variant, replica: Replica) -> None:
        name = f"{variant.spec.pinned}/{replica.index}"
        while True:
            try:
                if replica.ready:
                    await self._read_metrics(replica, name)
                    await self._pause(replica, self._health.metrics_interval_s)
                else:
                    await self._bring_up(variant, replica, name)
            except Exception:
                # Whatever a server answers, it stays watched: else it could never come back.
                self._log.exception("watching failed: replica=%s url=%s", name, replica.url)
                await asyncio.sleep(self._health.probe_interval_s)

    async def _pause(self, replica: Replica, seconds: float) -> None:
        replica.changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await replica.changed.wait()
        except TimeoutError:
            return

    async def _bring_up(self, variant: Variant, replica: Replica, name: str) -> None:
        if replica.ever_ready:
            self._log.warning("replica out: replica=%s url=%s cause=%r", name, replica.url, replica.last_error)
            await asyncio.sleep(max(0.0, replica.breaker.retry_at - time.monotonic()))
        while True:
            try:
                # A hosted model is billed per token, and its server is our own: being there is enough.
                if variant.spec.kind == "litellm":
                    await self._health_only(replica)
                else:
                    await self._prove(variant, replica)
            except UpstreamError as error:
                replica.last_error = str(error)
                pause = self._health.probe_interval_s
                if replica.ever_ready:
                    replica.breaker.probe_failed(time.monotonic())
                    pause = replica.breaker.retry_at - time.monotonic()
                await asyncio.sleep(pause)
                continue
            replica.mark_ready(time.monotonic())
            self._log.info("replica ready: replica=%s url=%s", name, replica.url)
            return

    async def _health_only(self, replica: Replica) -> None:
        limits = Limits(2.0, self._health.probe_timeout_s, self._health.probe_timeout_s, self._health.probe_timeout_s)
        status, _ = await get(replica.pool, b"/health", replica.headers, limits)
        if status != 200:
            raise UpstreamError("protocol", f"/health answered HTTP {status}")

    async def _prove(self, variant: Variant, replica: Replica) -> None:
        first = not replica.ever_ready
        result = await probe(replica.pool, variant.spec.served_model, replica.headers, self._health.probe_timeout_s)
        if first:
            # The first completion pays for lazy initialisation: only a second one shows the speed.
            result = await probe(replica.pool, variant.spec.served_model, replica.headers, self._health.probe_timeout_s)
        replica.max_model_len = result.max_model_len
        replica.estimator.observe_prefill(result.prompt_tokens, result.ttft_s)
        if result.itl_s is not None:
            replica.estimator.observe_decode(1.0, result.itl_s)

    async def _read_metrics(self, replica: Replica, name: str) -> None:
        limits = Limits(_METRICS_TIMEOUT_S, _METRICS_TIMEOUT_S, _METRICS_TIMEOUT_S, _METRICS_TIMEOUT_S)
        try:
            status, body = await get(replica.pool, b"/metrics", replica.headers, limits)
        except UpstreamError as error:
            now = time.monotonic()
            # A busy server may be late with /metrics while tokens flow: only a silent one has failed.
            refused = error.failure in ("connect", "closed") and not error.stale
            if (refused or now - replica.last_byte_at > _SILENT_S) and replica.failure(now, str(error)):
                self._log.debug("replica %s failed its health check: %s", name, error)
            return
        replica.last_byte_at = time.monotonic()
        metrics = parse_vllm_metrics(body) if status == 200 else None
        if metrics is not None:
            replica.read(time.monotonic(), metrics)

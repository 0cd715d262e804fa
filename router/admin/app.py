"""The operator's address: health, readiness, metrics, the variants' live state, the effective configuration."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, HTTPException, Response
from pydantic import BaseModel, ConfigDict, Field

from router.cache.link import Refusal
from router.cache.purge import Selection
from router.cache.stats import OFF
from router.config.runtime import Runtime
from router.config.show import redacted
from router.proxy.caching import Caching
from router.state import Fleet, Replica, Variant
from router.store.events import SinkStats
from router.telemetry import Metrics, Window


class ReplicaView(BaseModel):
    """One replica now."""

    index: int
    url: str
    ready: bool = Field(description="A real completion has been seen and no breaker is open.")
    available: bool = Field(description="Ready, and not cooling down after an overload.")
    breaker: str = Field(description="closed or open.")
    inflight: int = Field(description="Requests of this worker in flight.")
    running: float | None = Field(description="Requests running, as the server says.")
    waiting: float | None = Field(description="Requests waiting, as the server says.")
    kv_cache_usage: float | None = Field(description="Share of the KV cache in use.")
    requests: int = Field(description="Requests sent by this worker.")
    failures: int = Field(description="Failures seen by this worker.")
    last_error: str | None = Field(description="Why it is not ready.")


class WindowView(BaseModel):
    """What one place did in one sliding window, all workers together; rates are per second."""

    group: str
    variant: str
    replica: str = Field(description="Its number; none for requests that got nowhere.")
    scenario: str
    window: str = Field(description="10s, 1m or 5m.")
    requests_per_s: float
    prompt_tokens_per_s: float
    completion_tokens_per_s: float
    targeted_requests_per_s: float = Field(
        description="Requests that could meet their scenario's targets, or miss them."
    )
    goodput_requests_per_s: float = Field(description="Requests that met them.")
    goodput_tokens_per_s: float = Field(description="Generated tokens of those.")


class VariantView(BaseModel):
    """One variant now; speeds are this worker's own measurements."""

    group: str
    variant: str
    precision: str
    kind: str
    simulated: bool
    served_model: str
    max_model_len: int | None
    ready: bool = Field(description="At least one replica serves.")
    threshold: float | None = Field(description="Highest risk this precision takes; none for the group's highest.")
    ttft_ms: float | None = Field(description="Mean TTFT of the last minute's streams, milliseconds.")
    itl_ms: float | None = Field(description="Mean time between tokens of the last minute, milliseconds.")
    tokens_per_s_10s: float = Field(description="Generated tokens per second, last 10 s.")
    tokens_per_s_60s: float = Field(description="Generated tokens per second, last minute.")
    requests_60s: int = Field(description="Requests answered in the last minute.")
    replicas: list[ReplicaView]


class StatusView(BaseModel):
    """The whole of one worker."""

    ready: bool = Field(description="Every group has a variant that serves.")
    policy_version: str
    uptime_s: float
    redis: str = Field(description="State of the event sink.")
    variants: list[VariantView]


class CacheView(BaseModel):
    """This worker's cache."""

    state: str = Field(description="off, starting, up, down or stopped.")
    writable: bool = Field(description="Redis took the last entry.")
    bytes_read: int
    bytes_written: int
    lookups_failed: int
    writes_failed: int
    connections_lost: int
    unreadable: int = Field(description="Entries that were broken, of another version, or encrypted otherwise.")


class PurgeOrder(BaseModel):
    """Which answers to take out: those for which all of these hold."""

    model_config = ConfigDict(extra="forbid")

    group: str | None = Field(None, description="Of this group.")
    tenant: str | None = Field(None, description="Of this tenant, as events name it.")
    credential: str | None = Field(None, description="Of the tenant who sends this header value.", min_length=1)
    key: str | None = Field(None, description="To this request, as its event names it.")
    older_than_s: float | None = Field(None, ge=0, description="Older than this, seconds.")
    everything: bool = Field(False, description="Must be true where nothing else is given.")


class Purged(BaseModel):
    """What was taken out."""

    purged: int


def build_admin_app(
    runtime: Runtime,
    fleet: Fleet,
    metrics: Metrics,
    sink_stats: Callable[[], SinkStats],
    update_metrics: Callable[[], None],
    caching: Caching | None = None,
) -> FastAPI:
    """Return the admin application; its OpenAPI page is `/docs`."""
    app = FastAPI(title="Bitgear admin", version="1", docs_url="/docs", redoc_url=None)
    began = time.monotonic()

    @app.get("/healthz", summary="The worker lives")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", summary="Every group has a variant that serves", responses={503: {"description": "Not yet"}})
    async def readyz(response: Response) -> dict[str, Any]:
        missing = _groups_without_variant(fleet)
        response.status_code = 503 if missing else 200
        return {"ready": not missing, "groups_without_variant": missing}

    @app.get("/metrics", summary="Prometheus metrics", response_class=Response)
    async def metrics_text() -> Response:
        update_metrics()
        # Beside the streams that run here: with many workers and places this is megabytes of text.
        text = await asyncio.to_thread(metrics.render)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/admin/status", summary="Groups, variants and replicas as this worker sees them")
    async def status() -> StatusView:
        return StatusView(
            ready=not _groups_without_variant(fleet),
            policy_version=runtime.config.policy_version,
            uptime_s=round(time.monotonic() - began, 1),
            redis=sink_stats().state,
            variants=_views(fleet),
        )

    @app.get("/admin/variants", summary="Every variant now")
    async def variants() -> list[VariantView]:
        return _views(fleet)

    @app.get("/admin/windows", summary="Rates and goodput over sliding windows, by group, variant, replica, scenario")
    async def windows() -> list[WindowView]:
        update_metrics()
        return [_window_view(w) for w in metrics.windows()]

    @app.get("/admin/config", summary="Effective configuration; secrets are named, never shown")
    async def config() -> dict[str, Any]:
        return {key: redacted(value) for key, value in runtime.config.model_dump(mode="json").items()}

    @app.get("/admin/events", summary="State of the event sink")
    async def events() -> SinkStats:
        return sink_stats()

    @app.get("/admin/cache", summary="State of this worker's cache")
    async def cache() -> CacheView:
        return CacheView(**(caching.stats() if caching is not None else OFF)._asdict())

    @app.post("/admin/cache/purge", summary="Take answers out of the cache", responses={503: {}, 400: {}})
    async def cache_purge(order: PurgeOrder) -> Purged:
        chosen = order.model_dump(exclude={"everything", "credential"})
        if not order.everything and order.credential is None and all(v is None for v in chosen.values()):
            raise HTTPException(400, "name what to take out, or set everything")
        if caching is None:
            raise HTTPException(503, "there is no cache")
        try:
            return Purged(purged=await caching.purge(Selection(**chosen), order.credential))
        except ValueError as error:
            raise HTTPException(400, str(error)) from None
        except (OSError, Refusal) as error:
            raise HTTPException(503, f"Redis: {error or type(error).__name__}") from None

    return app


def _window_view(window: Window) -> WindowView:
    rates = {f"{name}_per_s": round(value, 4) for name, value in window.rate._asdict().items()}
    place = {k: v for k, v in window._asdict().items() if k != "rate"}
    return WindowView(**place, **rates)


def _groups_without_variant(fleet: Fleet) -> list[str]:
    return [g.name for g in fleet.groups.values() if not any(r.ready for v in g.variants.values() for r in v.replicas)]


def _views(fleet: Fleet) -> list[VariantView]:
    now = time.monotonic()
    return [
        _variant_view(v, g.thresholds.get(v.spec.precision), now)
        for g in fleet.groups.values()
        for v in g.variants.values()
    ]


def _variant_view(variant: Variant, threshold: float | None, now: float) -> VariantView:
    traffic, spec = variant.traffic, variant.spec
    return VariantView(
        group=spec.group,
        variant=spec.variant,
        precision=spec.precision,
        kind=spec.kind,
        simulated=spec.simulated,
        served_model=spec.served_model,
        max_model_len=variant.max_model_len,
        ready=any(r.ready for r in variant.replicas),
        threshold=threshold,
        ttft_ms=_ms(traffic.ttft_60s.mean(now)),
        itl_ms=_ms(traffic.itl_60s.mean(now)),
        tokens_per_s_10s=round(traffic.tokens_10s.total(now) / traffic.tokens_10s.seconds, 3),
        tokens_per_s_60s=round(traffic.tokens_60s.total(now) / traffic.tokens_60s.seconds, 3),
        requests_60s=traffic.requests_60s.count(now),
        replicas=[_replica_view(r, now) for r in variant.replicas],
    )


def _replica_view(replica: Replica, now: float) -> ReplicaView:
    metrics = replica.metrics
    return ReplicaView(
        index=replica.index,
        url=replica.url,
        ready=replica.ready,
        available=replica.available(now),
        breaker=replica.breaker.state,
        inflight=replica.inflight,
        running=metrics.running if metrics else None,
        waiting=metrics.waiting if metrics else None,
        kv_cache_usage=metrics.kv_cache_usage if metrics else None,
        requests=replica.requests,
        failures=replica.failures,
        last_error=replica.last_error,
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)

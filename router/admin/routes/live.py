"""What one worker sees: health, readiness, metrics, variants and replicas now."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from router.admin.context import Admin
from router.state import Fleet, Replica, Variant
from router.store.events import SinkStats
from router.telemetry import Window
from router.telemetry.rates import WINDOWS, Rate


class ReplicaView(BaseModel):
    """One replica now."""

    index: int
    url: str
    ready: bool = Field(description="A real completion has been seen and no breaker is open.")
    available: bool = Field(description="Ready, not drained, and not cooling down after an overload.")
    draining: bool = Field(description="It takes no new requests.")
    breaker: str = Field(description="closed or open.")
    inflight: int = Field(description="Requests of this worker in flight.")
    running: float | None = Field(description="Requests running, as the server says.")
    waiting: float | None = Field(description="Requests waiting, as the server says.")
    kv_cache_usage: float | None = Field(description="Share of the KV cache in use.")
    requests: int = Field(description="Requests sent by this worker.")
    failures: int = Field(description="Failures seen by this worker.")
    last_error: str | None = Field(description="Why it is not ready.")


class RatesView(BaseModel):
    """What was done in one sliding window, all workers together; rates are per second."""

    window: str = Field(description="10s, 1m or 5m.")
    requests_per_s: float
    prompt_tokens_per_s: float
    completion_tokens_per_s: float
    targeted_requests_per_s: float = Field(
        description="Requests that could meet their scenario's targets, or miss them."
    )
    goodput_requests_per_s: float = Field(description="Requests that met them.")
    goodput_tokens_per_s: float = Field(description="Generated tokens of those.")


class WindowView(RatesView):
    """The same for one place."""

    group: str
    variant: str
    replica: str = Field(description="Its number; none for requests that got nowhere.")
    scenario: str


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


class ControlView(BaseModel):
    """How this worker follows the configuration."""

    state: str = Field(description="off, starting, up, down or stopped.")
    version: int = Field(description="Of the document that is applied; 0: the file alone.")
    refused_version: int | None = Field(description="Newest version that could not be applied.")
    refused_because: str | None = Field(description="Why.")


class StatusView(BaseModel):
    """The whole of one worker; of its machine in `windows`."""

    ready: bool = Field(description="Every group has a variant that serves.")
    policy_version: str
    uptime_s: float
    redis: str = Field(description="State of the event sink.")
    control: ControlView
    windows: list[RatesView] = Field(description="All groups, of all workers of this machine.")
    variants: list[VariantView]


def routes(admin: Admin) -> APIRouter:
    """Return the routes of this subject."""
    router = APIRouter(tags=["live"])
    began = time.monotonic()

    @router.get("/healthz", summary="The worker lives")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @router.get("/readyz", summary="Every group has a variant that serves", responses={503: {"description": "Not yet"}})
    async def readyz(response: Response) -> dict[str, Any]:
        missing = _groups_without_variant(admin.serving().fleet)
        response.status_code = 503 if missing else 200
        return {"ready": not missing, "groups_without_variant": missing}

    @router.get("/metrics", summary="Prometheus metrics", response_class=Response)
    async def metrics_text() -> Response:
        admin.update_metrics()
        # Beside the streams that run here: with many workers and places this is megabytes of text.
        text = await asyncio.to_thread(admin.metrics.render)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @router.get("/admin/status", summary="Groups, variants and replicas as this worker sees them")
    async def status() -> StatusView:
        serving = admin.serving()
        stats = admin.follow()
        admin.update_metrics()
        return StatusView(
            ready=not _groups_without_variant(serving.fleet),
            policy_version=serving.version,
            uptime_s=round(time.monotonic() - began, 1),
            redis=admin.sink_stats().state,
            control=ControlView(
                state=stats.state,
                version=stats.version,
                refused_version=stats.refused[0] if stats.refused else None,
                refused_because=stats.refused[1] if stats.refused else None,
            ),
            windows=_totals(admin.metrics.windows()),
            variants=_views(serving.fleet),
        )

    @router.get("/admin/variants", summary="Every variant now")
    async def variants() -> list[VariantView]:
        return _views(admin.serving().fleet)

    @router.get(
        "/admin/windows", summary="Rates and goodput over sliding windows, by group, variant, replica, scenario"
    )
    async def windows() -> list[WindowView]:
        admin.update_metrics()
        return [_window_view(w) for w in admin.metrics.windows()]

    @router.get("/admin/events", summary="State of the event sink")
    async def events() -> SinkStats:
        return admin.sink_stats()

    return router


def _window_view(window: Window) -> WindowView:
    place = {k: v for k, v in window._asdict().items() if k != "rate"}
    return WindowView(**place, **_rates(window.rate))


def _totals(windows: list[Window]) -> list[RatesView]:
    """Return the sums over all places, the shortest window first; zeros where nothing was asked yet."""
    sums = {name: [0.0] * len(Rate._fields) for name in WINDOWS}
    for one in windows:
        sums[one.window] = [a + b for a, b in zip(sums[one.window], one.rate, strict=True)]
    return [RatesView(window=name, **_rates(Rate(*values))) for name, values in sums.items()]


def _rates(rate: Rate) -> dict[str, Any]:
    return {f"{name}_per_s": round(value, 4) for name, value in rate._asdict().items()}


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
        draining=replica.draining,
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

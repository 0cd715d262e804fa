"""Prometheus metrics. Labels come only from the configuration and from fixed lists, never from clients."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from router.cache.stats import CacheStats
from router.proxy.outcome import Outcome
from router.proxy.surface import ROUTE
from router.state import Fleet

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_ITL_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28)
_RISKS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)
_PER_VARIANT = ["group", "variant"]


class Metrics:
    """The worker's metrics; with several workers each answers for all, through files in `multiprocess_dir`.

    prometheus-client reads PROMETHEUS_MULTIPROC_DIR when it is imported: whoever starts the workers sets it.
    """

    def __init__(self, multiprocess_dir: Path | None) -> None:
        self._dir = multiprocess_dir
        self.registry = r = CollectorRegistry()
        self.requests = Counter(
            "bitgear_requests", "Requests ended.", ["group", "variant", "endpoint", "scenario", "status"], registry=r
        )
        self.decisions = Counter("bitgear_decisions", "Decisions.", [*_PER_VARIANT, "reason"], registry=r)
        self.failed_attempts = Counter(
            "bitgear_failed_attempts",
            "Attempts that a replica failed or refused; another may have taken over.",
            _PER_VARIANT,
            registry=r,
        )
        self.prompt_tokens = Counter(
            "bitgear_prompt_tokens", "Prompt tokens, as counted by the variants.", _PER_VARIANT, registry=r
        )
        self.completion_tokens = Counter(
            "bitgear_completion_tokens", "Generated tokens, as counted by the variants.", _PER_VARIANT, registry=r
        )
        self.ttft = Histogram(
            "bitgear_time_to_first_token_seconds",
            "Request's arrival to first token.",
            _PER_VARIANT,
            buckets=_SECONDS,
            registry=r,
        )
        self.itl = Histogram(
            "bitgear_inter_token_latency_seconds",
            "Mean time between a stream's tokens.",
            _PER_VARIANT,
            buckets=_ITL_SECONDS,
            registry=r,
        )
        self.e2e = Histogram(
            "bitgear_e2e_request_latency_seconds",
            "Request's arrival to its end.",
            _PER_VARIANT,
            buckets=_SECONDS,
            registry=r,
        )
        self.risk = Histogram("bitgear_risk", "Estimated risk.", ["group", "precision"], buckets=_RISKS, registry=r)
        self.events_dropped = Gauge(
            "bitgear_events_dropped",
            "Events lost because Redis was away too long.",
            multiprocess_mode="livesum",
            registry=r,
        )
        self.cache_requests = Counter(
            "bitgear_cache_requests", "Requests by what the cache did for them.", ["group", "result"], registry=r
        )
        self.cache_tokens = Counter(
            "bitgear_cache_tokens_saved", "Tokens of answers from the cache.", ["group", "kind"], registry=r
        )
        self.cache_semantic = Counter(
            "bitgear_cache_semantic",
            "Answers to another wording: given (hit), or checked against a fresh one.",
            ["group", "result"],
            registry=r,
        )
        self.cache_bytes = Counter(
            "bitgear_cache_bytes", "Bytes of entries read and written.", ["direction"], registry=r
        )
        self.cache_errors = Counter("bitgear_cache_errors", "What failed in the cache.", ["kind"], registry=r)
        self.cache_up = Gauge("bitgear_cache_up", "1 while Redis answers.", multiprocess_mode="livemin", registry=r)
        self._cache_seen: dict[str, int] = {}
        self.replica_ready = Gauge(
            "bitgear_replica_ready",
            "1 when the replica serves.",
            [*_PER_VARIANT, "replica"],
            multiprocess_mode="livemin",
            registry=r,
        )
        self.replica_inflight = Gauge(
            "bitgear_replica_inflight",
            "Requests in flight to the replica.",
            [*_PER_VARIANT, "replica"],
            multiprocess_mode="livesum",
            registry=r,
        )
        self._children: dict[tuple[str, ...], Counter | Histogram] = {}

    def _child(self, metric: Counter | Histogram, *labels: str) -> Counter | Histogram:
        # `labels()` checks and locks; a child once found is kept. The label values are bounded, so this is.
        key = (metric._name, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        return child

    def _count(self, metric: Counter, amount: float, *labels: str) -> None:
        child = self._child(metric, *labels)
        assert isinstance(child, Counter)
        child.inc(amount)

    def _observe(self, metric: Histogram, value: float, *labels: str) -> None:
        child = self._child(metric, *labels)
        assert isinstance(child, Histogram)
        child.observe(value)

    def finished(self, outcome: Outcome) -> None:
        """Count one ended request."""
        group = outcome.group.name if outcome.group else "none"
        variant = outcome.variant.name if outcome.variant else "none"
        scenario = outcome.decision.scenario if outcome.decision else "none"
        self._count(self.requests, 1, group, variant, outcome.endpoint.name, scenario, _status(outcome.status))
        if outcome.decision is not None and outcome.endpoint is not ROUTE:
            self._count(self.decisions, 1, group, variant, outcome.decision.reason)
            for candidate in outcome.decision.candidates:
                if candidate.threshold < 1.0:
                    self._observe(self.risk, candidate.risk, group, candidate.precision)
        if outcome.group is not None and outcome.endpoint.name != "other":
            self._count(self.cache_requests, 1, group, outcome.cache)
        if outcome.cache_likeness is not None:
            self._count(self.cache_semantic, 1, group, "hit")
        if outcome.cache_check is not None:
            self._count(self.cache_semantic, 1, group, outcome.cache_check)
        if outcome.cache == "hit":
            # Nothing was generated: tokens and times of the variant stay as they are.
            if outcome.usage is not None:
                self._count(self.cache_tokens, outcome.usage.prompt_tokens, group, "prompt")
                self._count(self.cache_tokens, outcome.usage.completion_tokens, group, "completion")
            return
        if outcome.usage is not None and outcome.variant is not None:
            self._count(self.prompt_tokens, outcome.usage.prompt_tokens, group, variant)
            self._count(self.completion_tokens, outcome.usage.completion_tokens, group, variant)
        if outcome.variant is not None and outcome.endpoint.generates:
            if outcome.ttft_s is not None:
                self._observe(self.ttft, outcome.ttft_s, group, variant)
            if outcome.itl_s is not None:
                self._observe(self.itl, outcome.itl_s, group, variant)
            if outcome.ok:
                self._observe(self.e2e, outcome.ended - outcome.began, group, variant)

    def retried(self, outcome: Outcome) -> None:
        """Count an attempt that another replica takes over."""
        if outcome.group is not None and outcome.variant is not None:
            self._count(self.failed_attempts, 1, outcome.group.name, outcome.variant.name)

    def update_gauges(self, fleet: Fleet, events_dropped: int) -> None:
        """Take the gauges from the live state; called before they are read, and now and then."""
        self.events_dropped.set(events_dropped)
        for group in fleet.groups.values():
            for variant in group.variants.values():
                for replica in variant.replicas:
                    labels = (group.name, variant.name, str(replica.index))
                    self.replica_ready.labels(*labels).set(1.0 if replica.ready else 0.0)
                    self.replica_inflight.labels(*labels).set(replica.inflight)

    def update_cache(self, stats: CacheStats) -> None:
        """Take the cache's counts, which it keeps itself; called before they are read, and now and then."""
        self.cache_up.set(1.0 if stats.state == "up" else 0.0)
        counts: list[tuple[Counter, str, int]] = [
            (self.cache_bytes, "read", stats.bytes_read),
            (self.cache_bytes, "written", stats.bytes_written),
            (self.cache_errors, "lookup", stats.lookups_failed),
            (self.cache_errors, "write", stats.writes_failed),
            (self.cache_errors, "connection", stats.connections_lost),
            (self.cache_errors, "unreadable", stats.unreadable),
        ]
        for counter, label, count in counts:
            self._count(counter, count - self._cache_seen.get(label, 0), label)
            self._cache_seen[label] = count

    def expose(self) -> bytes:
        """Return all metrics in Prometheus's text format: of every worker, whichever answers."""
        if self._dir is None:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=str(self._dir))  # type: ignore[no-untyped-call]
        return generate_latest(registry)


def _status(status: int) -> str:
    return str(status) if 200 <= status <= 599 else "none"

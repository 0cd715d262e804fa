"""Prometheus metrics of one worker, or of all of them, whichever is asked."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from router.cache.stats import CacheStats
from router.decision.types import Candidate
from router.proxy.outcome import Outcome
from router.proxy.surface import ROUTE
from router.state import Fleet, Replica
from router.telemetry.drift import DriftWatch, indices
from router.telemetry.families import RISKS, Families
from router.telemetry.files import reserve_files
from router.telemetry.place import Place
from router.telemetry.rates import WINDOWS, Rate
from router.telemetry.tally import Count, Spread


class EventCounts(NamedTuple):
    """What became of events since the start."""

    written: int = 0
    dropped: int = 0
    sampled_out: int = 0


class Window(NamedTuple):
    """One sliding window of one place, of all workers together."""

    group: str
    variant: str
    replica: str
    scenario: str
    window: str
    """10s, 1m or 5m."""
    rate: Rate


class Metrics:
    """The worker's metrics; with several workers each answers for all, through files in `multiprocess_dir`.

    A request adds to plain numbers; `flush`, once a second and before an answer, hands them to prometheus-client. So
    the others' figures in an answer may be a second old.
    prometheus-client reads PROMETHEUS_MULTIPROC_DIR when it is imported: whoever starts the workers sets it.
    """

    def __init__(self, multiprocess_dir: Path | None, gpu_hour: float | None = None) -> None:
        """`gpu_hour`: price of one GPU for an hour, of variants that name none."""
        self._dir = multiprocess_dir
        if multiprocess_dir is not None:
            reserve_files()
        self._gpu_hour = gpu_hour
        self.registry = CollectorRegistry()
        self._families = Families(self.registry)
        self._places: dict[tuple[str, str, str, str], Place] = {}
        # What a request adds one to, by all its labels together: they are bounded, so is this.
        self._ones: dict[tuple[str, ...], tuple[Count, ...]] = {}
        self._counts: dict[tuple[str, ...], Count] = {}
        self._risks: dict[tuple[str, str], Spread] = {}
        self._taken: dict[tuple[str, str], Spread] = {}
        self._seen: dict[str, int] = {}
        self._queued: dict[tuple[str, str, str], tuple[float, float]] = {}
        self._gauges: dict[tuple[str, ...], Gauge] = {}
        self._replicas: set[tuple[str, str, str]] = set()
        self._shown: set[tuple[str, str, str, str]] = set()

    def set_gpu_hour(self, gpu_hour: float | None) -> None:
        """Count money by another price from now on."""
        self._gpu_hour = gpu_hour
        for place in self._places.values():
            place.gpu_hour = gpu_hour

    def recent(self, group: str, now: float, seconds: int) -> Rate:
        """Return this worker's rates of a group over the last `seconds` (301 at most), all its requests together."""
        rates = [place.rates.rate(now, seconds) for key, place in self._places.items() if key[0] == group]
        return Rate(*(sum(column) for column in zip(*rates, strict=True))) if rates else Rate()

    def finished(self, outcome: Outcome) -> None:
        """Count one ended request."""
        decision, cache = outcome.decision, outcome.cache
        group = outcome.group.name if outcome.group else "none"
        variant = outcome.variant.name if outcome.variant else "none"
        scenario = decision.scenario if decision else "none"
        reason = decision.reason if decision is not None and outcome.endpoint is not ROUTE else ""
        key = (group, variant, outcome.endpoint.name, scenario, _status(outcome.status), reason, cache, _kind(outcome))
        ones = self._ones.get(key)
        if ones is None:
            ones = self._ones[key] = self._ones_of(outcome, key)
        for one in ones:
            one.pending += 1
        chosen: Candidate | None = None
        if decision is not None and reason:
            for candidate in decision.candidates:
                if candidate.threshold < 1.0:
                    self._risk(group, candidate.precision).add(candidate.risk)
                if candidate.variant == decision.variant:
                    chosen = candidate
            if decision.variant is not None:
                taken = self._taken.get((group, decision.variant))
                if taken is None:
                    taken = Spread(self._families.taken_risk, RISKS, (group, decision.variant))
                    self._taken[(group, decision.variant)] = taken
                taken.add(decision.risk)
        if outcome.cache_likeness is not None:
            self._count("cache_semantic", group, "hit").pending += 1
        if outcome.cache_check is not None:
            self._count("cache_semantic", group, outcome.cache_check).pending += 1
        if cache == "hit":
            # Nothing was generated: tokens and times of the variant stay as they are.
            if outcome.usage is not None:
                self._count("cache_tokens", group, "prompt").pending += outcome.usage.prompt_tokens
                self._count("cache_tokens", group, "completion").pending += outcome.usage.completion_tokens
            return
        if decision is not None and reason:
            where = (group, variant, str(outcome.replica.index) if outcome.replica else "none", scenario)
            place = self._places.get(where)
            if place is None:
                place = self._places[where] = Place(self._families, where, self._gpu_hour)
            place.add(outcome, chosen)

    def _ones_of(self, outcome: Outcome, key: tuple[str, ...]) -> tuple[Count, ...]:
        group, variant, endpoint, scenario, status, reason, cache, kind = key
        ones = [self._count("requests", group, variant, endpoint, scenario, status)]
        if reason:
            precision = outcome.variant.spec.precision if outcome.variant else "none"
            ones.append(self._count("decisions", group, variant, precision, reason))
        if outcome.group is not None and endpoint != "other":
            ones.append(self._count("cache_requests", group, cache))
        if kind:
            ones.append(self._count("errors", group, variant, scenario, kind))
        return tuple(ones)

    def _count(self, family: str, *labels: str) -> Count:
        key = (family, *labels)
        found = self._counts.get(key)
        if found is None:
            found = self._counts[key] = Count(getattr(self._families, family), labels)
        return found

    def _risk(self, group: str, precision: str) -> Spread:
        found = self._risks.get((group, precision))
        if found is None:
            found = self._risks[(group, precision)] = Spread(self._families.risk, RISKS, (group, precision))
        return found

    def retried(self, outcome: Outcome) -> None:
        """Count an attempt that another replica takes over."""
        if outcome.group is not None and outcome.variant is not None and outcome.replica is not None:
            labels = outcome.group.name, outcome.variant.name, str(outcome.replica.index)
            self._count("failed_attempts", *labels).pending += 1

    def update_events(self, events: EventCounts) -> None:
        """Take the event sink's counts, which it keeps itself."""
        for result, count in events._asdict().items():
            self._grown("events", result, count)

    def update_spans(self, sent: int, failed: int) -> None:
        """Take the traces' counts: spans that the collector took, and those it did not."""
        self._grown("spans", "sent", sent)
        self._grown("spans", "failed", failed)

    def update_cache(self, stats: CacheStats) -> None:
        """Take the cache's counts, which it keeps itself."""
        self._families.cache_up.set(1.0 if stats.state == "up" else 0.0)
        self._grown("cache_bytes", "read", stats.bytes_read)
        self._grown("cache_bytes", "written", stats.bytes_written)
        self._grown("cache_errors", "lookup", stats.lookups_failed)
        self._grown("cache_errors", "write", stats.writes_failed)
        self._grown("cache_errors", "connection", stats.connections_lost)
        self._grown("cache_errors", "unreadable", stats.unreadable)

    def _grown(self, family: str, label: str, total: int) -> None:
        seen = f"{family} {label}"
        before = self._seen.get(seen, 0)
        # Less than before: what counts was replaced, and began anew.
        self._count(family, label).pending += total - before if total >= before else total
        self._seen[seen] = total

    def update_gauges(self, fleet: Fleet) -> None:
        """Take the gauges from the live state; called before they are read, and now and then."""
        now, families = time.monotonic(), self._families
        gone, self._replicas = self._replicas, set()
        for group in fleet.groups.values():
            for variant in group.variants.values():
                threshold = group.thresholds.get(variant.spec.precision)
                if threshold is not None:
                    self._set(families.threshold, threshold, group.name, variant.spec.precision)
                for replica in variant.replicas:
                    labels = (group.name, variant.name, str(replica.index))
                    self._replicas.add(labels)
                    self._set(families.replica_ready, 1.0 if replica.ready else 0.0, *labels)
                    self._set(families.replica_inflight, replica.inflight, *labels)
                    self._server_gauges(replica, labels)
        for labels in gone - self._replicas:
            self._forget(labels)
        for place in self._places.values():
            self._update_windows(place, now)

    def _forget(self, labels: tuple[str, str, str]) -> None:
        """Take out what was said of a replica that is no longer there."""
        f = self._families
        for family in (f.replica_inflight, f.replica_running, f.replica_waiting, f.replica_kv, f.replica_queue):
            if (family._name, *labels) in self._gauges:
                self._set(family, 0.0, *labels)
        if self._dir is None:
            f.replica_ready.remove(*labels)
            del self._gauges[(f.replica_ready._name, *labels)]
        else:
            # Files of several workers cannot lose a series; one that is no number neither serves nor is down.
            self._set(f.replica_ready, math.nan, *labels)

    def _server_gauges(self, replica: Replica, labels: tuple[str, str, str]) -> None:
        metrics, families = replica.metrics, self._families
        if metrics is None:
            return
        self._set(families.replica_running, metrics.running, *labels)
        self._set(families.replica_waiting, metrics.waiting, *labels)
        self._set(families.replica_kv, metrics.kv_cache_usage, *labels)
        seconds, count = self._queued.get(labels, (0.0, 0.0))
        if metrics.queued_requests != count:
            # Fewer than before: the server has started anew.
            grown = metrics.queued_requests > count
            mean = (metrics.queue_seconds - seconds) / (metrics.queued_requests - count) if grown else 0.0
            self._set(families.replica_queue, max(0.0, mean), *labels)
            self._queued[labels] = metrics.queue_seconds, metrics.queued_requests

    def _update_windows(self, place: Place, now: float) -> None:
        idle = place.rates.idle(now)
        if idle and place.labels not in self._shown:
            return
        for window, seconds in WINDOWS.items():
            rate = place.rates.rate(now, seconds)
            for family, value in zip(self._families.rates.values(), rate, strict=True):
                self._set(family, value, *place.labels, window)
        # Once more with zeros, then it rests.
        (self._shown.discard if idle else self._shown.add)(place.labels)

    def _set(self, family: Gauge, value: float, *labels: str) -> None:
        key = (family._name, *labels)
        child = self._gauges.get(key)
        if child is None:
            child = self._gauges[key] = family.labels(*labels)
        child.set(value)

    def update_drift(self, watch: DriftWatch) -> None:
        """Show this worker's counts, and the index of all workers'."""
        families = self._families
        requests, counts = watch.counts()
        families.drift_requests.set(requests)
        for name, bins in counts.items():
            for number, count in enumerate(bins):
                self._set(families.drift_bins, count, name, str(number))
        found = {name: [0.0] * len(bins) for name, bins in counts.items()}
        for labels, value in self._sums(families.drift_bins):
            bins_of = found.get(labels["feature"], [])
            if int(labels["bin"]) < len(bins_of):
                bins_of[int(labels["bin"])] += value
        for name, index in indices(found, watch.reference).items():
            self._set(families.drift_index, index, name)

    def set_calibration(self, group: str, precision: str, error: float, bias: float) -> None:
        """Show how risks stand against shadow pairs, as a tuning job found it (`router.tuning.calibration`)."""
        self._set(self._families.calibration_error, error, group, precision)
        self._set(self._families.calibration_bias, bias, group, precision)

    def flush(self) -> None:
        """Hand on what requests have added; on the event loop's thread alone."""
        for place in list(self._places.values()):
            place.flush()
        for count in self._counts.values():
            count.flush()
        for spread in (*self._risks.values(), *self._taken.values()):
            spread.flush()

    def windows(self) -> list[Window]:
        """Return the sliding windows of every worker, as they last wrote them (each second)."""
        found: dict[tuple[str, str, str, str, str], dict[str, float]] = {}
        for name, family in self._families.rates.items():
            for labels, value in self._sums(family):
                key = labels["group"], labels["variant"], labels["replica"], labels["scenario"], labels["window"]
                found.setdefault(key, {})[name] = value
        return [Window(*key, Rate(**rate)) for key, rate in sorted(found.items())]

    def _sums(self, gauge: Gauge) -> list[tuple[dict[str, str], float]]:
        """Return the samples of a gauge that adds up, over all workers."""
        metrics = gauge.collect()
        if self._dir is not None:
            files = [str(path) for path in self._dir.glob("gauge_livesum_*.db")]
            metrics = MultiProcessCollector.merge(files, accumulate=True)  # type: ignore[no-untyped-call]
        return [(s.labels, s.value) for m in metrics if m.name == gauge._name for s in m.samples]

    def expose(self) -> bytes:
        """Return all metrics in Prometheus's text format: of every worker, whichever answers."""
        self.flush()
        return self.render()

    def render(self) -> bytes:
        """Return the text without a flush: any thread may do this, so that streams need not wait for it."""
        if self._dir is None:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=str(self._dir))  # type: ignore[no-untyped-call]
        return generate_latest(registry)


def _status(status: int) -> str:
    return str(status) if 200 <= status <= 599 else "none"


def _kind(outcome: Outcome) -> str:
    """Return what kind of failure it was, from a fixed list; empty for none."""
    status = outcome.status
    if outcome.error is None:
        return ""
    if status == 499:
        return "client_left"
    if status in (429, 503):
        return "overloaded"
    if status == 504:
        return "timeout"
    if 400 <= status < 500:
        return "client"
    return "broken_stream" if status < 400 else "server"

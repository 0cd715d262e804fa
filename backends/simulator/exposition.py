"""The page `/metrics`, with the names, labels and help texts of vLLM 0.32."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from backends.simulator.metrics import EngineMetrics, Histogram

_REASONS = ("stop", "length", "abort", "error", "repetition")
_TIERS = ("device", "host", "p2p", "disk", "external_unspecified")
_PER_GPU = "(for Model Flops Utilization calculations)."


@dataclass(frozen=True)
class _Scalar:
    """One family that is no histogram."""

    kind: type[CounterMetricFamily] | type[GaugeMetricFamily]
    name: str
    text: str
    read: Callable[[EngineMetrics], float | dict[str, float]]
    """A value, or one for each value of `label`."""
    label: str = ""
    engine: bool = True
    """Whether it has vLLM's label `engine`."""


_SCALARS = (
    _Scalar(
        CounterMetricFamily, "estimated_flops_per_gpu",
        f"Estimated number of floating point operations per GPU {_PER_GPU}", lambda m: m.engine.counts.flops,
    ),
    _Scalar(
        CounterMetricFamily, "estimated_read_bytes_per_gpu",
        f"Estimated number of bytes read from memory per GPU {_PER_GPU}", lambda m: m.engine.counts.read_bytes,
    ),
    _Scalar(
        CounterMetricFamily, "estimated_write_bytes_per_gpu",
        f"Estimated number of bytes written to memory per GPU {_PER_GPU}", lambda m: m.engine.counts.write_bytes,
    ),
    _Scalar(
        GaugeMetricFamily, "num_requests_running", "Number of requests in model execution batches.",
        lambda m: len(m.engine.running),
    ),
    _Scalar(
        GaugeMetricFamily, "num_requests_waiting", "Number of requests waiting to be processed.",
        lambda m: len(m.engine.waiting),
    ),
    _Scalar(
        GaugeMetricFamily, "num_requests_waiting_by_reason",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; "
        "'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all "
        "reasons equals vllm:num_requests_waiting.",
        lambda m: {"capacity": len(m.engine.waiting), "deferred": 0}, "reason",
    ),
    _Scalar(
        GaugeMetricFamily, "engine_sleep_state",
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded "
        "= 1 means sleep level 1; discard_all = 1 means sleep level 2.",
        lambda m: {"awake": 1, "weights_offloaded": 0, "discard_all": 0}, "sleep_state",
    ),
    _Scalar(
        GaugeMetricFamily, "kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.",
        lambda m: m.engine.kv_usage,
    ),
    _Scalar(
        CounterMetricFamily, "prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.",
        lambda m: m.engine.counts.prompt_tokens,
    ),
    _Scalar(
        CounterMetricFamily, "prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.",
        lambda m: 0,
    ),
    _Scalar(
        CounterMetricFamily, "external_prefix_cache_queries",
        "External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of queried "
        "tokens.", lambda m: 0,
    ),
    _Scalar(
        CounterMetricFamily, "external_prefix_cache_hits",
        "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached "
        "tokens.", lambda m: 0,
    ),
    _Scalar(
        CounterMetricFamily, "mm_cache_queries",
        "Multi-modal cache queries, in terms of number of queried items.", lambda m: 0,
    ),
    _Scalar(
        CounterMetricFamily, "mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items.",
        lambda m: 0,
    ),
    _Scalar(
        CounterMetricFamily, "num_preemptions", "Cumulative number of preemption from the engine.",
        lambda m: m.engine.counts.preemptions,
    ),
    _Scalar(
        CounterMetricFamily, "prompt_tokens", "Number of prefill tokens processed.",
        lambda m: m.engine.counts.prompt_tokens,
    ),
    _Scalar(
        CounterMetricFamily, "prompt_tokens_by_source", "Number of prompt tokens by source.",
        lambda m: {
            "local_compute": m.engine.counts.prompt_tokens, "local_cache_hit": 0, "external_kv_transfer": 0,
        }, "source",
    ),
    _Scalar(
        CounterMetricFamily, "prompt_tokens_cached", "Number of cached prompt tokens (local + external).",
        lambda m: 0,
    ),
    _Scalar(
        CounterMetricFamily, "prompt_tokens_cached_by_source",
        "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), "
        "disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; sums to "
        "vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
        lambda m: dict.fromkeys(_TIERS, 0), "source",
    ),
    _Scalar(
        CounterMetricFamily, "generation_tokens", "Number of generation tokens processed.",
        lambda m: m.engine.counts.generation_tokens,
    ),
    _Scalar(
        CounterMetricFamily, "request_success", "Count of successfully processed requests.",
        lambda m: {reason: m.finished[reason] for reason in _REASONS}, "finished_reason",
    ),
    _Scalar(
        CounterMetricFamily, "admission_rejections",
        "Number of admission attempts rejected by a queue limit, by reason.",
        lambda m: {"max_num_queued_reqs": m.rejected, "max_num_queued_tokens": 0}, "reason", engine=False,
    ),
)  # fmt: skip


class _One(Collector):
    """A family as a collector gives it."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        """prometheus_client's call."""
        yield self._family


def _text(family: Metric) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_One(family))
    return generate_latest(registry)


class _Lines:
    """A histogram's lines, written once by prometheus_client; after that only their numbers change.

    They are most of the page, and a proxy reads it many times a second.
    """

    def __init__(self, histogram: Histogram, labels: dict[str, str], created: float) -> None:
        self._histogram = histogram
        self._seen: tuple[list[int], float] | None = None
        self._text = b""
        lines = _text(_histogram(histogram, labels, created)).splitlines()
        self._before: list[tuple[bytes, str]] = []
        """Each line up to its number, and whose number that is; a whole line where it never changes."""
        for line in lines:
            name = line.partition(b"{")[0]
            kind = next((k for k in ("bucket", "count", "sum") if name == f"{histogram.name}_{k}".encode()), "")
            self._before.append((line.rpartition(b" ")[0] + b" " if kind else line, kind))

    def text(self) -> bytes:
        """The lines now."""
        counts, total = self._histogram.counts, self._histogram.sum
        if self._seen != (counts, total):
            self._seen = (counts.copy(), total)
            self._text = b"\n".join(self._now()) + b"\n"
        return self._text

    def _now(self) -> Iterator[bytes]:
        cumulated = accumulate(self._histogram.counts)
        for line, kind in self._before:
            if kind == "bucket":
                yield line + _number(next(cumulated)).encode()
            elif kind:
                yield line + _number(self._histogram.total if kind == "count" else self._histogram.sum).encode()
            else:
                yield line


class _Figures:
    """An engine's figures as Prometheus' families."""

    def __init__(self, metrics: EngineMetrics) -> None:
        self._metrics = metrics
        self._created = time.time()
        self._labels = {"engine": "0", "model_name": metrics.model}
        self._said: dict[int, tuple[float | dict[str, float], bytes]] = {}

    def scalars(self) -> Iterator[bytes]:
        """The lines of all families but histograms and the cache's; they are written where a value changed."""
        for number, scalar in enumerate(_SCALARS):
            value = scalar.read(self._metrics)
            value = dict(value) if isinstance(value, dict) else value
            if self._said.get(number, (None, b""))[0] != value:
                family = self._scalar(scalar, value)
                self._said[number] = value, _text(family)
            yield self._said[number][1]

    def histograms(self) -> list[_Lines]:
        """The histograms' lines."""
        return [_Lines(histogram, self._labels, self._created) for histogram in self._metrics.histograms]

    def _scalar(self, scalar: _Scalar, value: float | dict[str, float]) -> Metric:
        labels = self._labels if scalar.engine else {"model_name": self._metrics.model}
        family = scalar.kind(
            f"vllm:{scalar.name}", scalar.text, labels=[*labels, scalar.label] if scalar.label else list(labels)
        )
        values = {(name,): number for name, number in value.items()} if isinstance(value, dict) else {(): value}
        for extra, number in values.items():
            if isinstance(family, CounterMetricFamily):
                family.add_metric([*labels.values(), *extra], number, created=self._created)
            else:
                family.add_metric([*labels.values(), *extra], number)
        return family

    def cache_info(self) -> bytes:
        """The lines that tell of the KV cache; they never change."""
        engine = self._metrics.engine
        info = {
            "block_size": str(engine.block_size),
            "cache_dtype": "auto",
            "enable_prefix_caching": "False",
            "engine": "0",
            "gpu_memory_utilization": "0.92",
            "kv_cache_memory_bytes": str(self._metrics.kv_bytes),
            "kv_cache_size_tokens": str(engine.kv_blocks * engine.block_size),
            "num_cpu_blocks": "None",
            "num_gpu_blocks": str(engine.kv_blocks),
        }
        family = GaugeMetricFamily(
            "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", labels=list(info)
        )
        family.add_metric(list(info.values()), 1)
        return _text(family)


def _histogram(histogram: Histogram, labels: dict[str, str], created: float) -> Metric:
    cumulated = accumulate(histogram.counts)
    buckets = [(_number(bound), next(cumulated)) for bound in (*histogram.bounds, float("inf"))]
    family = HistogramMetricFamily(histogram.name, histogram.text, labels=list(labels))
    family.add_metric(list(labels.values()), buckets, histogram.sum)
    family.add_sample(f"{histogram.name}_created", labels, created)
    return family


def _number(value: float) -> str:
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]
    return text


class Exposition:
    """The page: the process's own figures and the engine's."""

    def __init__(self, metrics: EngineMetrics) -> None:
        self._figures = _Figures(metrics)
        self._process = CollectorRegistry(auto_describe=False)
        GCCollector(self._process)
        PlatformCollector(self._process)
        ProcessCollector(registry=self._process)
        self._histograms: list[_Lines] = []
        self._info = b""

    def page(self) -> bytes:
        """Prometheus' text format."""
        if not self._histograms:
            self._histograms, self._info = self._figures.histograms(), self._figures.cache_info()
        histograms = [lines.text() for lines in self._histograms]
        return b"".join([generate_latest(self._process), *self._figures.scalars(), *histograms, self._info])


__all__ = ["Exposition"]

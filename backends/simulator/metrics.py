"""vLLM's `/metrics`, with the names, labels and buckets of vLLM 0.32, from what the engine really did."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from backends.simulator.engine import Engine, Sequence

_FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
_BETWEEN_TOKENS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_REQUEST = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_CHOICES = (1, 2, 5, 10, 20)
_PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)
_REASONS = ("stop", "length", "abort", "error", "repetition")


class Histogram:
    """Counts by bucket, and the sum. It is written once per token, so it does as little as it can."""

    __slots__ = ("bounds", "counts", "name", "sum", "text")

    def __init__(self, name: str, text: str, bounds: Iterable[float]) -> None:
        self.name = name
        self.text = text
        self.bounds = tuple(float(bound) for bound in bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def total(self) -> int:
        """How many values were counted."""
        return sum(self.counts)

    def family(self, labels: dict[str, str]) -> HistogramMetricFamily:
        """For exposition."""
        cumulated = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            cumulated += count
            buckets.append((_number(bound), cumulated))
        family = HistogramMetricFamily(self.name, self.text, labels=list(labels))
        family.add_metric(list(labels.values()), buckets, self.sum)
        return family


def _number(bound: float) -> str:
    text: str = floatToGoString(bound)  # type: ignore[no-untyped-call]
    return text


def _powers(limit: int) -> list[int]:
    """1, 2, 5, 10, 20, 50 and so on, to `limit`."""
    bounds = [m * 10**e for e in range(len(str(limit))) for m in (1, 2, 5)]
    return [bound for bound in bounds if bound <= limit]


class EngineMetrics(Collector):
    """Collects one engine's figures."""

    def __init__(self, engine: Engine[Any], model: str, *, max_model_len: int, kv_bytes: int) -> None:
        self.engine = engine
        self.model = model
        self.kv_bytes = kv_bytes
        self.created = time.time()
        self.finished: Counter[str] = Counter()
        self.rejected = 0
        powers = _powers(max_model_len)
        self.prompt = Histogram("vllm:request_prompt_tokens", "Number of prefill tokens processed.", powers)
        self.generation = Histogram("vllm:request_generation_tokens", "Number of generation tokens processed.", powers)
        self.step_tokens = Histogram(
            "vllm:iteration_tokens_total", "Histogram of number of tokens per engine_step.", _STEP_TOKENS
        )
        self.most_tokens = Histogram(
            "vllm:request_max_num_generation_tokens",
            "Histogram of maximum number of requested generation tokens.",
            powers,
        )
        self.n = Histogram("vllm:request_params_n", "Histogram of the n request parameter.", _CHOICES)
        self.max_tokens = Histogram(
            "vllm:request_params_max_tokens", "Histogram of the max_tokens request parameter.", powers
        )
        self.first_token = Histogram(
            "vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", _FIRST_TOKEN
        )
        self.between_tokens = Histogram(
            "vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", _BETWEEN_TOKENS
        )
        self.per_token = Histogram(
            "vllm:request_time_per_output_token_seconds",
            "Histogram of time_per_output_token_seconds per request.",
            _BETWEEN_TOKENS,
        )
        self.whole = Histogram(
            "vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", _REQUEST
        )
        self.queue = Histogram(
            "vllm:request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", _REQUEST
        )
        self.inference = Histogram(
            "vllm:request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.", _REQUEST
        )
        self.prefill = Histogram(
            "vllm:request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.", _REQUEST
        )
        self.decode = Histogram(
            "vllm:request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", _REQUEST
        )
        self.preemptions = Histogram(
            "vllm:request_num_preemptions", "Histogram of the number of times a request was preempted.", _PREEMPTIONS
        )
        self.computed = Histogram(
            "vllm:request_prefill_kv_computed_tokens",
            "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
            powers,
        )

    def token(self, sequence: Sequence[Any], now: float) -> None:
        """`sequence` got a token at `now`."""
        if sequence.last_token is None:
            sequence.first_token = now
            self.first_token.observe(now - sequence.arrived)
        else:
            self.between_tokens.observe(now - sequence.last_token)
        sequence.last_token = now

    def ended(self, sequence: Sequence[Any], reason: str, now: float) -> None:
        """`sequence` ended at `now` for one of vLLM's reasons: stop, length, abort, error."""
        self.finished[reason] += 1
        if reason in ("abort", "error"):
            return
        started = sequence.started if sequence.started is not None else now
        first = sequence.first_token if sequence.first_token is not None else now
        self.prompt.observe(sequence.prompt_tokens)
        self.computed.observe(sequence.prompt_tokens)
        self.generation.observe(0 if sequence.pooling else sequence.produced)
        self.most_tokens.observe(0 if sequence.pooling else sequence.produced)
        self.whole.observe(now - sequence.arrived)
        self.queue.observe(started - sequence.arrived)
        self.inference.observe(now - started)
        self.prefill.observe(first - started)
        self.decode.observe(now - first)
        self.per_token.observe((now - first) / (sequence.produced - 1) if sequence.produced > 1 else 0.0)
        self.preemptions.observe(sequence.preemptions)

    def collect(self) -> Iterator[Metric]:
        """prometheus_client's call."""
        engine = self.engine
        counts = engine.counts
        one = {"engine": "0", "model_name": self.model}
        waiting = len(engine.waiting)
        yield self._counter(
            "estimated_flops_per_gpu",
            "Estimated number of floating point operations per GPU (for Model Flops Utilization calculations).",
            {(): counts.flops},
        )
        yield self._counter(
            "estimated_read_bytes_per_gpu",
            "Estimated number of bytes read from memory per GPU (for Model Flops Utilization calculations).",
            {(): counts.read_bytes},
        )
        yield self._counter(
            "estimated_write_bytes_per_gpu",
            "Estimated number of bytes written to memory per GPU (for Model Flops Utilization calculations).",
            {(): counts.write_bytes},
        )
        yield self._gauge(
            "num_requests_running", "Number of requests in model execution batches.", {(): len(engine.running)}
        )
        yield self._gauge("num_requests_waiting", "Number of requests waiting to be processed.", {(): waiting})
        yield self._gauge(
            "num_requests_waiting_by_reason",
            "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals vllm:num_requests_waiting.",
            {(("reason", "capacity"),): waiting, (("reason", "deferred"),): 0},
        )
        yield self._gauge(
            "engine_sleep_state",
            "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
            {
                (("sleep_state", "awake"),): 1,
                (("sleep_state", "weights_offloaded"),): 0,
                (("sleep_state", "discard_all"),): 0,
            },
        )
        yield self._gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", {(): engine.kv_usage})
        yield self._counter(
            "prefix_cache_queries",
            "Prefix cache queries, in terms of number of queried tokens.",
            {(): counts.prompt_tokens},
        )
        yield self._counter("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", {(): 0})
        yield self._counter(
            "num_preemptions", "Cumulative number of preemption from the engine.", {(): counts.preemptions}
        )
        yield self._counter("prompt_tokens", "Number of prefill tokens processed.", {(): counts.prompt_tokens})
        yield self._counter(
            "prompt_tokens_by_source",
            "Number of prompt tokens by source.",
            {
                (("source", "local_compute"),): counts.prompt_tokens,
                (("source", "local_cache_hit"),): 0,
                (("source", "external_kv_transfer"),): 0,
            },
        )
        yield self._counter("prompt_tokens_cached", "Number of cached prompt tokens (local + external).", {(): 0})
        yield self._counter(
            "generation_tokens", "Number of generation tokens processed.", {(): counts.generation_tokens}
        )
        yield self._counter(
            "request_success",
            "Count of successfully processed requests.",
            {(("finished_reason", reason),): self.finished[reason] for reason in _REASONS},
        )
        yield self._counter(
            "admission_rejections",
            "Number of admission attempts rejected by a queue limit, by reason.",
            {(("reason", "max_num_queued_reqs"),): self.rejected, (("reason", "max_num_queued_tokens"),): 0},
            {"model_name": self.model},
        )
        for histogram in (
            self.prompt,
            self.generation,
            self.step_tokens,
            self.most_tokens,
            self.n,
            self.max_tokens,
            self.first_token,
            self.between_tokens,
            self.per_token,
            self.whole,
            self.queue,
            self.inference,
            self.prefill,
            self.decode,
            self.preemptions,
            self.computed,
        ):
            yield histogram.family(one)
        info = {
            "block_size": str(engine.block_size),
            "cache_dtype": "auto",
            "enable_prefix_caching": "False",
            "engine": "0",
            "gpu_memory_utilization": "0.92",
            "kv_cache_memory_bytes": str(self.kv_bytes),
            "kv_cache_size_tokens": str(engine.kv_blocks * engine.block_size),
            "num_cpu_blocks": "None",
            "num_gpu_blocks": str(engine.kv_blocks),
        }
        yield self._gauge("cache_config_info", "Information of the LLMEngine CacheConfig", {(): 1}, info)

    def _counter(
        self,
        name: str,
        text: str,
        values: dict[tuple[tuple[str, str], ...], float],
        labels: dict[str, str] | None = None,
    ) -> CounterMetricFamily:
        base = {"engine": "0", "model_name": self.model} if labels is None else labels
        extra = [key for key, _ in next(iter(values))]
        family = CounterMetricFamily(f"vllm:{name}", text, labels=[*base, *extra])
        for key, value in values.items():
            family.add_metric([*base.values(), *(v for _, v in key)], value, created=self.created)
        return family

    def _gauge(
        self,
        name: str,
        text: str,
        values: dict[tuple[tuple[str, str], ...], float],
        labels: dict[str, str] | None = None,
    ) -> GaugeMetricFamily:
        base = {"engine": "0", "model_name": self.model} if labels is None else labels
        extra = [key for key, _ in next(iter(values))]
        family = GaugeMetricFamily(f"vllm:{name}", text, labels=[*base, *extra])
        for key, value in values.items():
            family.add_metric([*base.values(), *(v for _, v in key)], value)
        return family


class Exposition:
    """The page: the engine's figures and the process's own."""

    def __init__(self, metrics: EngineMetrics) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        GCCollector(self._registry)
        PlatformCollector(self._registry)
        ProcessCollector(registry=self._registry)
        self._registry.register(metrics)

    def page(self) -> bytes:
        """Prometheus' text format 0.0.4."""
        return generate_latest(self._registry)


__all__ = ["EngineMetrics", "Exposition", "Histogram"]

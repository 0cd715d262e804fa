"""What the engine really did, in the histograms of vLLM 0.32 and with their buckets."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import Any

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


def _powers(limit: int) -> list[int]:
    """1, 2, 5, 10, 20, 50 and so on, to `limit`."""
    bounds = [m * 10**e for e in range(len(str(limit))) for m in (1, 2, 5)]
    return [bound for bound in bounds if bound <= limit]


class EngineMetrics:
    """One engine's figures."""

    def __init__(self, engine: Engine[Any], model: str, *, max_model_len: int, kv_bytes: int) -> None:
        self.engine = engine
        self.model = model
        self.kv_bytes = kv_bytes
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

    @property
    def histograms(self) -> tuple[Histogram, ...]:
        """All, in vLLM's order."""
        return (
            self.prompt, self.generation, self.step_tokens, self.most_tokens, self.n, self.max_tokens,
            self.first_token, self.between_tokens, self.per_token, self.whole, self.queue, self.inference,
            self.prefill, self.decode, self.preemptions, self.computed,
        )  # fmt: skip

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


__all__ = ["EngineMetrics", "Histogram"]

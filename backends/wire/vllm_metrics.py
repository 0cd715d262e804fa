"""What Bitgear reads from a vLLM server's `/metrics` (Prometheus text format), old names and new."""

from __future__ import annotations

import math
from dataclasses import dataclass

_FIELDS: dict[bytes, str] = {
    b"vllm:num_requests_running": "running",
    b"vllm:num_requests_waiting": "waiting",
    b"vllm:kv_cache_usage_perc": "kv_cache_usage",
    b"vllm:gpu_cache_usage_perc": "kv_cache_usage",
    b"vllm:prompt_tokens_total": "prompt_tokens",
    b"vllm:generation_tokens_total": "generation_tokens",
    b"vllm:num_preemptions_total": "preemptions",
    b"vllm:request_queue_time_seconds_sum": "queue_seconds",
    b"vllm:request_queue_time_seconds_count": "queued_requests",
}


@dataclass(frozen=True, slots=True)
class VllmMetrics:
    """Gauges now and counters since the server's start; engines of one server are added up."""

    running: float = 0.0
    waiting: float = 0.0
    kv_cache_usage: float = 0.0
    """Share of the KV cache in use, in [0, 1]; the fullest engine's."""
    prompt_tokens: float = 0.0
    generation_tokens: float = 0.0
    preemptions: float = 0.0
    queue_seconds: float = 0.0
    """Time that requests have waited, all together."""
    queued_requests: float = 0.0
    """How many those were."""


def parse_vllm_metrics(text: bytes) -> VllmMetrics | None:
    """Return the figures, or None when the text has none of vLLM's names (another server)."""
    values: dict[str, float] = {}
    for line in text.split(b"\n"):
        if not line.startswith(b"vllm:"):
            continue
        name = line.partition(b"{")[0] if b"{" in line else line.partition(b" ")[0]
        field = _FIELDS.get(name)
        if field is None:
            continue
        try:
            value = float(line.rpartition(b" ")[2])
        except ValueError:
            continue
        if not math.isfinite(value):
            continue
        if field == "kv_cache_usage":
            values[field] = max(values.get(field, 0.0), value)
        else:
            values[field] = values.get(field, 0.0) + value
    return VllmMetrics(**values) if values else None

"""How long one engine step takes: the roofline of a decoder on one device.

A step runs two kinds of kernels one after the other, and each takes as long as the slower of reading and computing:

    linear layers = max(weight bytes / bandwidth, 2 * parameters * tokens / peak of the precision's arithmetic)
    attention     = max(KV bytes / bandwidth, 4 * layers * query heads * head dim * attended pairs / FP16 peak)
    step          = (linear layers + attention) / efficiency + overhead

Every weight is read once per step, every cached key and value of the sequences that the step advances too. A pair is
one new token and one token that it attends to. Keys and values are kept, and attention computed, in 16 bits at every
precision.

Sources: Williams, Waterman, Patterson, "Roofline" (CACM 2009) for the maximum; Kaplan et al. (arXiv 2001.08361,
table 1) for 2 operations per parameter and token and for attention's part; Pope et al., "Efficiently Scaling
Transformer Inference" (arXiv 2211.05102) for decoding as a read of weights and KV cache.

Weight-only formats (INT4, MXFP4, NVFP4 kernels that dequantise, as Marlin: arXiv 2408.11743) store few bits and
compute in FP16; W8A8 formats (INT8, FP8) store 8 bits and compute at twice FP16's peak (NVIDIA H100 data sheet:
989 TFLOP/s dense at FP16, 1979 at FP8 and INT8). So INT4 leads while memory bounds the step (small batch), and
INT8 when arithmetic does (large batch).
"""

from __future__ import annotations

from dataclasses import dataclass

from backends.settings import Precision, SimulatorSettings

_BITS: dict[Precision, float] = {
    "fp32": 32,
    "fp16": 16,
    "bf16": 16,
    "fp8": 8,
    "int8": 8,
    "mxfp4": 4 + 8 / 32,  # an 8-bit scale for 32 weights
    "nvfp4": 4 + 8 / 16,  # an 8-bit scale for 16 weights
    "int4": 4,  # and a 16-bit scale for each group, of `group_size` weights
}
_PEAK_FACTOR: dict[Precision, float] = {
    "fp32": 0.5,  # TF32
    "fp16": 1,
    "bf16": 1,
    "fp8": 2,
    "int8": 2,
    "mxfp4": 1,
    "nvfp4": 1,
    "int4": 1,
}
_KV_BYTES = 2  # keys and values are cached in 16 bits at every precision


def bits_per_weight(settings: SimulatorSettings, precision: Precision) -> float:
    """Bits that one weight takes in memory, its share of scales included."""
    scales = 16 / settings.group_size if precision == "int4" else 0.0
    return _BITS[precision] + scales


def kv_bytes_per_token(settings: SimulatorSettings) -> int:
    """Bytes of keys and values that one token adds to the cache."""
    return 2 * settings.layers * settings.kv_heads * settings.head_dim * _KV_BYTES


@dataclass(frozen=True)
class Roofline:
    """One precision on one device: all sizes in bytes and operations, all times in seconds."""

    weight_bytes: float
    kv_bytes_per_token: float
    flops_per_token: float
    attention_flops: float
    """Operations for one query token over one cached token."""
    bandwidth: float
    peak: float
    """Of the linear layers' arithmetic, operations per second."""
    attention_peak: float
    efficiency: float
    overhead_s: float
    slowdown: float

    @classmethod
    def of(cls, settings: SimulatorSettings, precision: Precision) -> Roofline:
        """The roofline of these settings at `precision`."""
        parameters = settings.parameters_b * 1e9
        factor = _PEAK_FACTOR[precision] if settings.peak_factor is None else settings.peak_factor
        return cls(
            weight_bytes=parameters * bits_per_weight(settings, precision) / 8,
            kv_bytes_per_token=kv_bytes_per_token(settings),
            flops_per_token=2 * parameters,
            # scores and their weighted sum: 2 products of head_dim, 2 operations each, per head and layer
            attention_flops=4 * settings.layers * settings.query_heads * settings.head_dim,
            bandwidth=settings.bandwidth_gb_s * 1e9,
            peak=settings.peak_tflops * 1e12 * factor,
            attention_peak=settings.peak_tflops * 1e12,
            efficiency=settings.efficiency,
            overhead_s=settings.overhead_ms / 1e3,
            slowdown=settings.slowdown,
        )

    def read_bytes(self, kv_tokens: int) -> float:
        """Bytes that a step reads when its sequences have `kv_tokens` tokens cached in all."""
        return self.weight_bytes + self.kv_bytes_per_token * kv_tokens

    def flops(self, tokens: int, attended: int) -> float:
        """Operations of a step over `tokens` new tokens that attend to `attended` pairs (query, cached token)."""
        return self.flops_per_token * tokens + self.attention_flops * attended

    def step_s(self, tokens: int, kv_tokens: int, attended: int) -> float:
        """Seconds that a step over `tokens` new tokens takes."""
        linear = max(self.weight_bytes / self.bandwidth, self.flops_per_token * tokens / self.peak)
        attention = max(
            self.kv_bytes_per_token * kv_tokens / self.bandwidth, self.attention_flops * attended / self.attention_peak
        )
        return ((linear + attention) / self.efficiency + self.overhead_s) * self.slowdown

    def decode_tokens_per_s(self, batch: int, context: int) -> float:
        """Tokens per second of `batch` sequences that decode together, each with `context` tokens cached."""
        return batch / self.step_s(batch, batch * context, batch * context)


__all__ = ["Roofline", "bits_per_weight", "kv_bytes_per_token"]

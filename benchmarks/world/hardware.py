"""Simulated variants: a model on H100-like devices, one replica a device."""

from __future__ import annotations

from dataclasses import dataclass, field

from backends.settings import Precision, SimulatorSettings
from backends.simulator.roofline import Roofline
from backends.vllm.memory import GPU_OVERHEAD_GIB, GPU_USABLE
from benchmarks.world.engine import Engine, kv_tokens
from router.config.runtime import RuntimeVariant

H100_MEMORY_GIB = 79.6
"""What `nvidia-smi` says of an H100 SXM of 80 GB (81,559 MiB)."""
DEFAULT = SimulatorSettings(max_num_seqs=256)
"""The simulator's own model and device: 8 billion parameters (36 layers, 8 KV heads of 128, as Qwen3-8B has), 3350 GB/s and
989 TFLOP/s dense at FP16 (NVIDIA H100 SXM data sheet), 60% of the roofline, 2 ms per step; vLLM's 256 sequences."""


@dataclass(frozen=True)
class VariantSpec:
    """One variant: a precision and how many devices serve it."""

    precision: Precision
    replicas: int = 1
    name: str | None = None
    price: float = 1.0
    settings: SimulatorSettings = field(default=DEFAULT)
    kv_tokens: int | None = None
    """None: what an H100 holds beside the weights; so a lower precision has more room."""

    @property
    def variant(self) -> str:
        """Its name within the group."""
        return self.name or self.precision

    def engine(self) -> Engine:
        """Return one replica's engine."""
        roofline = Roofline.of(self.settings, self.precision)
        room = kv_tokens(H100_MEMORY_GIB, GPU_USABLE, GPU_OVERHEAD_GIB, roofline)
        return Engine(
            roofline,
            max_num_seqs=self.settings.max_num_seqs,
            max_num_batched_tokens=self.settings.max_num_batched_tokens,
            kv_tokens=room if self.kv_tokens is None else self.kv_tokens,
        )

    def runtime(self, group: str) -> RuntimeVariant:
        """Return what a proxy would be told of it; nothing listens there."""
        return RuntimeVariant(
            group=group,
            variant=self.variant,
            precision=self.precision,
            urls=tuple(f"http://{self.variant}-{i}:8000" for i in range(self.replicas)),
            served_model=group,
            price=self.price,
            max_model_len=131_072,
            simulated=True,
        )


def saturation(spec: VariantSpec, prompt_tokens: float, output_tokens: float) -> float:
    """Return the requests/s that one device can serve of such requests; an estimate, in closed form.

    In the steady state of a full batch of B sequences, each step decodes B tokens and computes the prompts of the
    B / output_tokens requests that come for those that go: rate = B / output_tokens / step time.
    """
    engine = spec.engine()
    context = prompt_tokens + output_tokens / 2
    batch = max(1.0, min(spec.settings.max_num_seqs, engine.kv_tokens / (prompt_tokens + output_tokens)))
    starting = batch / output_tokens
    tokens = batch + starting * prompt_tokens
    attended = batch * context + starting * prompt_tokens * (prompt_tokens + 1) / 2
    return starting / engine.roofline.step_s(int(tokens), int(batch * context), int(attended))

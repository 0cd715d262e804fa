"""The memory arithmetic of one variant, and its words."""

from __future__ import annotations

from dataclasses import dataclass

from backends.vllm.facts import ModelFacts

GIB = 1024**3
CPU_OVERHEAD_GIB = 1.3
"""Memory of one CPU server besides weights and KV cache: API server 0.6, engine core 0.6 and what a load takes for a moment.

Measured with vLLM 0.32 and SmolLM2-135M at 1 GiB of KV cache: 2.2 to 2.5 GiB each (PSS), 7.0 GiB for three."""
CPU_WORKER_GIB = 0.6
"""More when the server binds cores: its worker is then a process of its own (measured as above: 3.0 GiB in all)."""
CPU_WEIGHT_FACTOR = 1.1
"""Weights in memory over weights by count (packing for the kernels)."""
GPU_OVERHEAD_GIB = 2.5
"""CUDA context, activations and graphs of one server, assumed (not measured here; vLLM profiles the real figure)."""
GPU_USABLE = 0.92
"""Share of a GPU that plans divide: the rest is for the driver and fragmentation (vLLM's own default is 0.9 to 0.92)."""


@dataclass(frozen=True)
class Need:
    """Memory of one server."""

    weights_gib: float
    kv_gib: float
    overhead_gib: float

    @property
    def total_gib(self) -> float:
        """Their sum, GiB."""
        return self.weights_gib + self.kv_gib + self.overhead_gib

    def words(self, servers: int = 1) -> str:
        """`0.28 weights + 1.00 KV cache + 1.30 overhead = 2.58 GiB`, times servers if there are more."""
        one = f"{self.weights_gib:.2f} weights + {self.kv_gib:.2f} KV cache + {self.overhead_gib:.2f} overhead = {self.total_gib:.2f} GiB"
        return one if servers == 1 else f"{servers} x ({one}) = {servers * self.total_gib:.2f} GiB"


def cpu_need(facts: ModelFacts | None, precision: str, kv_gib: int, *, binds_cores: bool = False) -> Need:
    """Memory of one CPU server; weights count as 0 where the model isn't known yet."""
    weights = facts.weight_bytes(precision) / GIB * CPU_WEIGHT_FACTOR if facts else 0.0
    return Need(weights, float(kv_gib), CPU_OVERHEAD_GIB + (CPU_WORKER_GIB if binds_cores else 0.0))


def tokens_in(kv_gib: float, facts: ModelFacts, value_bytes: int = 2) -> int:
    """Tokens whose keys and values, of `value_bytes` each, fit into `kv_gib`, in whole blocks of 128."""
    return int(kv_gib * GIB // facts.kv_bytes_per_token(value_bytes)) // 128 * 128

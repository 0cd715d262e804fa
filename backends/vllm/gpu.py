"""Plans on GPUs: each server gets whole devices, or a share of one, so that weights and a useful KV cache fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from backends.processes import PlanError
from backends.vllm.machine import Gpu, Machine
from backends.vllm.memory import GIB, GPU_OVERHEAD_GIB, GPU_USABLE, Need
from backends.vllm.variant import Placement, Variant

MIN_KV_GIB = 0.5
"""Least KV cache per server and GPU that makes sense."""


@dataclass
class _Server:
    """One server being placed."""

    variant: int
    devices: tuple[int, ...]
    share: float | None
    fixed_gib: float
    """Weights and overhead on each of its devices."""
    least_kv_gib: float
    kv_gib: float = 0.0
    utilization: float = 0.0


@dataclass
class _Load:
    """What is placed on one GPU."""

    gpu: Gpu
    servers: list[_Server] = field(default_factory=list)

    @property
    def room_gib(self) -> float:
        """GiB that plans may divide: a share of the whole, less what others hold already."""
        return min(self.gpu.memory_gib * GPU_USABLE, self.gpu.free_gib)


def place(group: str, variants: Sequence[Variant], machine: Machine) -> list[list[Placement]]:
    """One placement per replica of each variant. Raises PlanError with the sum when a GPU doesn't hold its servers."""
    loads = {gpu.index: _Load(gpu) for gpu in machine.gpus}
    servers: list[_Server] = []
    for number, variant in enumerate(variants):
        for replica in range(variant.settings.replicas):
            server = _assign(number, variant, replica, loads)
            servers.append(server)
            for index in server.devices:
                loads[index].servers.append(server)
    for load in loads.values():
        _divide(group, variants, load)
    # A server over several GPUs takes the same share of each: the least that any of them can give.
    placed: list[list[Placement]] = [[] for _ in variants]
    for server in servers:
        placed[server.variant].append(_placement(variants[server.variant], server, loads))
    return placed


def _assign(number: int, variant: Variant, replica: int, loads: dict[int, _Load]) -> _Server:
    """Choose the devices of one server: its own, or the least taken of all."""
    settings = variant.settings
    weights = variant.facts.weight_bytes(variant.precision) / GIB if variant.facts else 0.0
    if settings.devices:
        missing = [d for d in settings.devices if d not in loads]
        if missing:
            raise PlanError(f"{variant.name}: vllm.devices names GPU {missing}, but there are {sorted(loads)}")
        size = max(1, len(settings.devices) // settings.replicas)
        start = replica * size % len(settings.devices)
        devices = settings.devices[start : start + size]
    else:
        size = _width(variant, weights, loads)
        devices = tuple(sorted(sorted(loads, key=lambda i: (len(loads[i].servers), i))[:size]))
    per_gpu = weights / len(devices)
    return _Server(number, devices, settings.memory_share, per_gpu + GPU_OVERHEAD_GIB, _least_kv(variant, len(devices)))


def _width(variant: Variant, weights: float, loads: dict[int, _Load]) -> int:
    """Least power of two of GPUs that holds the weights and divides the attention heads (tensor parallelism)."""
    heads = variant.facts.attention_heads if variant.facts else 1
    room = min(load.room_gib for load in loads.values())
    width = 1
    while weights / width + GPU_OVERHEAD_GIB + MIN_KV_GIB > room:
        width *= 2
        if width > len(loads) or heads % width:
            raise PlanError(
                f"{variant.name}: {weights:.1f} GiB of weights + {GPU_OVERHEAD_GIB} overhead + {MIN_KV_GIB} KV cache "
                f"do not fit {len(loads)} GPU(s) with {room:.1f} usable GiB each"
            )
    return width


def _least_kv(variant: Variant, width: int) -> float:
    """GiB of KV cache per GPU for one request of the asked context length."""
    if variant.facts is None or variant.max_model_len is None:
        return MIN_KV_GIB
    return max(MIN_KV_GIB, variant.max_model_len * variant.facts.kv_bytes_per_token() / GIB / width)


def _divide(group: str, variants: Sequence[Variant], load: _Load) -> None:
    """Give each server of one GPU its share: what it needs, and an equal part of the rest as KV cache."""
    if not load.servers:
        return
    total = load.gpu.memory_gib
    given = [s for s in load.servers if s.share is not None]
    open_ = [s for s in load.servers if s.share is None]
    room = load.room_gib - sum((s.share or 0) * total for s in given)
    rest = room - sum(s.fixed_gib for s in open_)
    part = rest / len(open_) if open_ else 0.0
    short = [s for s in open_ if part < s.least_kv_gib]
    short += [s for s in given if (s.share or 0) * total < s.fixed_gib + s.least_kv_gib]
    if short or room < -1e-6:
        rows = "\n".join(
            f"  {variants[s.variant].name}: {s.fixed_gib:.2f} weights and overhead + {s.least_kv_gib:.2f} least KV cache"
            + (f", of its share {s.share:.2f} x {total:.1f} = {s.share * total:.1f} GiB" if s.share is not None else "")
            for s in load.servers
        )
        need = sum(s.fixed_gib + s.least_kv_gib if s.share is None else s.share * total for s in load.servers)
        raise PlanError(
            f"group {group!r}: GPU {load.gpu.index} ({load.gpu.name}) has {load.room_gib:.1f} usable of {total:.1f} GiB, "
            f"its {len(load.servers)} server(s) need {need:.1f} GiB or more:\n{rows}"
        )
    for server in load.servers:
        gib = server.share * total if server.share is not None else server.fixed_gib + part
        share = math.floor(gib / total * 1000) / 1000
        if not server.utilization or share < server.utilization:
            server.utilization, server.kv_gib = share, gib - server.fixed_gib


def _placement(variant: Variant, server: _Server, loads: dict[int, _Load]) -> Placement:
    args = ["--dtype", {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}.get(variant.precision, "auto")]
    args += ["--gpu-memory-utilization", f"{server.utilization:.3f}"]
    if len(server.devices) > 1:
        args += ["--tensor-parallel-size", str(len(server.devices))]
    length = variant.max_model_len
    if length is None and variant.facts is not None:
        room = int(server.kv_gib * len(server.devices) * GIB // variant.facts.kv_bytes_per_token())
        if room < variant.facts.max_model_len:
            length = room // 128 * 128
    if length is not None:
        args += ["--max-model-len", str(length)]
    names = ", ".join(f"{i} ({loads[i].gpu.name})" for i in server.devices)
    width = len(server.devices)
    need = Need(
        weights_gib=(server.fixed_gib - GPU_OVERHEAD_GIB) * width,
        kv_gib=server.kv_gib * width,
        overhead_gib=GPU_OVERHEAD_GIB * width,
    )
    env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, server.devices))}
    return Placement(tuple(args), env, need, where=f"GPU {names}", gpus=server.devices)

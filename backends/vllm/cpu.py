"""Plans on a machine without a GPU: cores divided, KV cache in whole GiB, everything must fit memory.

Full precision is computed in bfloat16 where the CPU has instructions for it, otherwise in float32: emulated bfloat16 is
slower (SmolLM2-135M on two AVX2 cores, 8 streams: 12 tokens/s against 35). The weights stay what the checkpoint holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from backends.processes import PlanError
from backends.vllm.machine import Machine
from backends.vllm.memory import Need, cpu_need, tokens_in
from backends.vllm.recipes import FULL_PRECISIONS
from backends.vllm.variant import Placement, Variant

RESERVE_GIB = 1.0
"""Left for the proxy and the system."""


def place(group: str, variants: Sequence[Variant], machine: Machine) -> list[list[Placement]]:
    """One placement per replica of each variant. Raises PlanError with the sum when memory doesn't hold them."""
    servers = sum(v.settings.replicas for v in variants)
    needs = [
        cpu_need(
            v.facts,
            "fp32" if computed_in(v, machine) == "float32" else v.precision,
            v.settings.kv_cache_gib,
            binds_cores=bool(v.settings.cores),
        )
        for v in variants
    ]
    _check_memory(group, variants, needs, machine)
    share = max(1, len(machine.cores) // max(1, servers))
    placed = []
    for variant, need in zip(variants, needs, strict=True):
        _check_precision(variant)
        _check_cores(variant, machine)
        dtype = computed_in(variant, machine)
        length = _model_len(variant, 4 if dtype == "float32" else 2)
        env = _environment(variant, share)
        args = ["--dtype", dtype]
        if length is not None:
            args += ["--max-model-len", str(length)]
        note = f"weights {variant.precision}, computed in {dtype}" if _widened(variant, machine) else ""
        placed.append([Placement(tuple(args), env, need, note=note) for _ in range(variant.settings.replicas)])
    return placed


def computed_in(variant: Variant, machine: Machine) -> str:
    """Return the type of activations and KV cache (and of unquantized weights in memory), as vLLM's `--dtype` names it."""
    return "float32" if variant.precision == "fp32" or _widened(variant, machine) else "bfloat16"


def _widened(variant: Variant, machine: Machine) -> bool:
    """Whether 16-bit weights are computed in float32, for want of instructions for bfloat16."""
    full = variant.precision in FULL_PRECISIONS and variant.weights.quantization is None
    return (
        full
        and variant.precision != "fp32"
        and not machine.bfloat16
        and not (variant.facts and variant.facts.quantized)
    )


def _environment(variant: Variant, share: int) -> dict[str, str]:
    settings = variant.settings
    env = {"VLLM_CPU_KVCACHE_SPACE": str(settings.kv_cache_gib)}
    if settings.cores:
        # vLLM binds only in a worker process of its own.
        env["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, settings.cores))
        env["OMP_NUM_THREADS"] = str(settings.threads or len(settings.cores))
    else:
        # `auto` would bind every server to the same first cores. Unbound, the engine core can do the worker's job:
        # one process less to start, half the time and 0.5 GiB less.
        env["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        env["OMP_NUM_THREADS"] = str(settings.threads or share)
        env["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    return env


def _check_memory(group: str, variants: Sequence[Variant], needs: Sequence[Need], machine: Machine) -> None:
    total = sum(n.total_gib * v.settings.replicas for n, v in zip(needs, variants, strict=True))
    if total + RESERVE_GIB <= machine.memory_gib:
        return
    rows = "\n".join(f"  {v.name}: {n.words(v.settings.replicas)}" for n, v in zip(needs, variants, strict=True))
    raise PlanError(
        f"group {group!r} needs {total:.1f} GiB and {RESERVE_GIB:.0f} GiB of reserve, "
        f"but {machine.memory_gib:.1f} GiB are available:\n{rows}\n"
        "Serve fewer precisions or replicas, lower vllm.kv_cache_gib, or take a smaller model."
    )


def _check_precision(variant: Variant) -> None:
    if variant.precision in ("fp8", "mxfp4", "nvfp4") or variant.weights.quantization == "fp8":
        raise PlanError(
            f"{variant.name}: vLLM on a CPU has no kernels for {variant.weights.quantization or variant.precision}; "
            "use fp16, bf16, int8 or int4 there"
        )


def _check_cores(variant: Variant, machine: Machine) -> None:
    foreign = [c for c in variant.settings.cores if c not in machine.cores]
    if foreign:
        raise PlanError(
            f"{variant.name}: vllm.cores names {foreign}, but this process may run on {list(machine.cores)} only"
        )


def _model_len(variant: Variant, value_bytes: int) -> int | None:
    """Context length for `--max-model-len`; None: the model's own (nothing is known about it)."""
    asked = variant.max_model_len
    if variant.facts is None:
        return asked
    room = tokens_in(variant.settings.kv_cache_gib, variant.facts, value_bytes)
    if asked is None:
        return min(variant.facts.max_model_len, room)
    if asked > room:
        per_token = variant.facts.kv_bytes_per_token(value_bytes)
        raise PlanError(
            f"{variant.name}: {asked} tokens of context take {asked} x {per_token} bytes = {asked * per_token / 1024**3:.2f} GiB "
            f"of KV cache, but vllm.kv_cache_gib is {variant.settings.kv_cache_gib} ({room} tokens)"
        )
    return asked

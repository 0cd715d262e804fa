"""What this machine has for engines: cores, memory, GPUs. Only `detect` looks; the rest is arithmetic."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from backends.vllm.engine import probe

GIB = 1024**3
_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16", "svebf16"})
_UNLIMITED = 1 << 60
"""cgroup v1 writes its 'no limit' as a number of this order."""


@dataclass(frozen=True)
class Gpu:
    """One GPU."""

    index: int
    name: str
    memory_gib: float
    """All of its memory, GiB: the whole that vLLM's share is a share of."""
    free_gib: float


@dataclass(frozen=True)
class Machine:
    """Resources that a plan may divide."""

    cores: tuple[int, ...]
    """CPU cores that this process may run on."""
    memory_gib: float
    """Memory that new processes can take now, GiB (cgroup limits counted)."""
    gpus: tuple[Gpu, ...] = ()
    bfloat16: bool = True
    """Whether the CPU multiplies bfloat16 by instructions of its own (AVX512-BF16, AMX, Arm's BF16)."""


def detect(python: str | None = None) -> Machine:
    """This machine, as of now. What cannot be read counts as absent.

    With `python`, the interpreter that has the engine, GPUs that its build of vLLM cannot use don't count (raises
    PlanError when it cannot be run).
    """
    gpus = _gpus()
    if gpus and python is not None and probe(python).build == "cpu":
        gpus = ()
    return Machine(
        cores=_cores(), memory_gib=available_memory_gib(Path("/")), gpus=gpus, bfloat16=has_bfloat16(Path("/"))
    )


def has_bfloat16(root: Path) -> bool:
    """Whether `/proc/cpuinfo` lists instructions for bfloat16; True where it lists no flags at all (not Linux).

    `root` is `/`; tests give a folder with a file of the same name.
    """
    for line in _read(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() in ("flags", "features"):
            return not _BFLOAT16_FLAGS.isdisjoint(value.split())
    return True


def _cores() -> tuple[int, ...]:
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def available_memory_gib(root: Path) -> float:
    """MemAvailable of /proc/meminfo, or what the cgroup's limit leaves if that is less, GiB.

    `root` is `/`; tests give a folder with files of the same names.
    """
    available = _meminfo_available(root / "proc/meminfo")
    return min([available, *_cgroup_headroom(root)]) / GIB


def _meminfo_available(path: Path) -> int:
    for line in _read(path).splitlines():
        key, _, value = line.partition(":")
        if key == "MemAvailable":
            return int(value.split()[0]) * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 0


def _cgroup_headroom(root: Path) -> list[int]:
    """Bytes left under each memory limit on the way from this process's cgroup to the root (v2, then v1)."""
    left = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy == "0" and not controllers:
            base, limit, used = root / "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            base, limit, used = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        folder = base / path.lstrip("/")
        # Inside a container the path may be the host's: then only the mounted root counts.
        for candidate in (folder, *folder.parents):
            if candidate != base and base not in candidate.parents:
                break
            top = _number(candidate / limit)
            if top is not None and top < _UNLIMITED:
                cache = _stat(candidate / "memory.stat", "inactive_file", "total_inactive_file")
                left.append(max(0, top - (_number(candidate / used) or 0) + cache))
    return left


def _stat(path: Path, *keys: str) -> int:
    values = dict(line.split(" ", 1) for line in _read(path).splitlines() if " " in line)
    return next((int(values[k]) for k in reversed(keys) if k in values), 0)


def _number(path: Path) -> int | None:
    return _whole(_read(path).strip())


def _whole(text: str) -> int | None:
    # Neither superscripts, which are digits too, nor more of them than Python reads.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _gpus() -> tuple[Gpu, ...]:
    query = ["nvidia-smi", "--query-gpu=index,name,memory.total,memory.free", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return parse_gpus(answer.splitlines(), os.environ.get("CUDA_VISIBLE_DEVICES"))


def parse_gpus(lines: Iterable[str], visible: str | None = None) -> tuple[Gpu, ...]:
    """GPUs from nvidia-smi's `index, name, total MiB, free MiB` lines.

    `visible` is CUDA_VISIBLE_DEVICES: with indices in it, only these count; empty means none.
    """
    gpus = []
    for line in lines:
        parts = [p.strip() for p in line.split(",")]
        if len(parts) != 4:
            continue
        index, total, free = _whole(parts[0]), _whole(parts[2]), _whole(parts[3])
        # "[N/A]" stands for memory that the driver does not report (shared-memory machines).
        if index is not None and total is not None and free is not None:
            gpus.append(Gpu(index, parts[1], total / 1024, free / 1024))
    if visible is None:
        return tuple(gpus)
    wanted = [_whole(part.strip()) for part in visible.split(",") if part.strip()]
    return tuple(gpus) if None in wanted else tuple(g for g in gpus if g.index in wanted)

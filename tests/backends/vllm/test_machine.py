from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.vllm import machine
from backends.vllm.engine import Engine
from backends.vllm.machine import GIB, Gpu, available_memory_gib, detect, parse_gpus


def _write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMINFO = "MemTotal:       33554432 kB\nMemFree:         1048576 kB\nMemAvailable:   16777216 kB\n"


def test_without_a_limit_the_kernel_says(tmp_path: Path) -> None:
    assert available_memory_gib(_write(tmp_path, {"proc/meminfo": MEMINFO})) == 16


def test_a_v2_limit_counts_and_page_cache_does_not(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "0::/app\n",
        "sys/fs/cgroup/app/memory.max": f"{8 * GIB}\n",
        "sys/fs/cgroup/app/memory.current": f"{5 * GIB}\n",
        "sys/fs/cgroup/app/memory.stat": f"anon 1\ninactive_file {2 * GIB}\n",
        "sys/fs/cgroup/memory.max": "max\n",
    }
    assert available_memory_gib(_write(tmp_path, files)) == 5


def test_a_parents_limit_counts(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "0::/pod/app\n",
        "sys/fs/cgroup/pod/app/memory.max": "max\n",
        "sys/fs/cgroup/pod/memory.max": str(4 * GIB),
        "sys/fs/cgroup/pod/memory.current": str(1 * GIB),
    }
    assert available_memory_gib(_write(tmp_path, files)) == 3


def test_inside_a_container_the_path_is_the_hosts(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "0::/kubepods/burstable/pod123\n",
        "sys/fs/cgroup/memory.max": str(2 * GIB),
        "sys/fs/cgroup/memory.current": "0",
    }
    assert available_memory_gib(_write(tmp_path, files)) == 2


def test_a_v1_limit_counts_and_its_infinity_does_not(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "5:memory:/app\n3:cpu,cpuacct:/app\n",
        "sys/fs/cgroup/memory/app/memory.limit_in_bytes": str(6 * GIB),
        "sys/fs/cgroup/memory/app/memory.usage_in_bytes": str(1 * GIB),
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
    }
    assert available_memory_gib(_write(tmp_path, files)) == 5


def test_nothing_to_read_is_not_an_error(tmp_path: Path) -> None:
    assert available_memory_gib(tmp_path) >= 0


SMI = ["0, NVIDIA H100 80GB HBM3, 81559, 81000", "1, NVIDIA H100 80GB HBM3, 81559, 512"]


def test_gpus_are_read() -> None:
    gpus = parse_gpus(SMI)
    assert [g.index for g in gpus] == [0, 1]
    assert gpus[0] == Gpu(0, "NVIDIA H100 80GB HBM3", 81559 / 1024, 81000 / 1024)
    assert gpus[1].free_gib == 0.5


@pytest.mark.parametrize(
    ("visible", "indices"),
    [(None, [0, 1]), ("1", [1]), ("", []), ("0,1", [0, 1]), ("GPU-3f2a", [0, 1]), ("²", [0, 1]), ("1, ", [1])],
)
def test_visible_devices_count(visible: str | None, indices: list[int]) -> None:
    assert [g.index for g in parse_gpus(SMI, visible)] == indices


def test_a_gpu_without_figures_is_left_out() -> None:
    assert parse_gpus(["0, NVIDIA GB10, [N/A], [N/A]", "", "nonsense"]) == ()


@given(st.lists(st.text()), st.none() | st.text())
def test_any_output_is_read_or_left(lines: list[str], visible: str | None) -> None:
    assert isinstance(parse_gpus(lines, visible), tuple)


def test_this_machine_is_seen() -> None:
    found = detect()
    assert found.cores
    assert found.memory_gib > 0


def test_gpus_that_the_engine_cannot_use_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_gpus", lambda: (Gpu(0, "H100", 80, 80),))
    monkeypatch.setattr(machine, "probe", lambda python: Engine(python, "0.32.0", "cpu", True, True))
    assert detect("python").gpus == ()
    assert len(detect().gpus) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512f\n", False),
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512_bf16 avx512f\n", True),
        ("flags\t\t: fpu amx_bf16 amx_tile\n", True),
        ("Features\t: fp asimd bf16\n", True),
        ("Features\t: fp asimd\n", False),
        ("processor\t: 0\n", True),
    ],
)
def test_bfloat16_is_read_from_the_cpu_flags(tmp_path: Path, text: str, expected: bool) -> None:
    assert machine.has_bfloat16(_write(tmp_path, {"proc/cpuinfo": text})) is expected

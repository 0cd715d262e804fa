"""Supervising workers: restarts with backoff, a worker that cannot start, draining, dead workers' gauges."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.cli import workers as module
from router.cli.workers import Workers


@pytest.fixture
def fds() -> Iterator[tuple[int, int]]:
    pair = os.pipe()
    yield pair
    for fd in pair:
        os.close(fd)


def make(tmp_path: Path, fds: tuple[int, int], program: str, count: int = 1) -> tuple[Workers, list[str]]:
    said: list[str] = []
    workers = Workers(
        count,
        tmp_path / "runtime.json",
        api_fd=fds[0],
        admin_fd=fds[1],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
        log=lambda number: tmp_path / f"{number}.log",
        on_line=said.append,
    )
    workers._argv = [sys.executable, "-c", program]
    return workers, said


async def until(condition: object, deadline_s: float = 60) -> None:
    assert callable(condition)
    async with asyncio.timeout(deadline_s):
        while not condition():
            await asyncio.sleep(0.02)


async def test_a_worker_that_dies_is_started_again(
    tmp_path: Path, fds: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)
    workers, said = make(tmp_path, fds, "import time; time.sleep(1000)", count=2)
    workers.start()
    await until(lambda: len(workers.pids()) == 2)
    before = set(workers.pids())
    victim = workers.pids()[0]
    gauges = tmp_path / f"gauge_livesum_{victim}.db"
    counters = tmp_path / f"counter_{victim}.db"
    gauges.touch()
    counters.touch()
    os.kill(victim, signal.SIGKILL)
    await until(lambda: len(workers.pids()) == 2 and victim not in workers.pids())
    assert len(before & set(workers.pids())) == 1
    assert "worker" in said[0]
    assert not gauges.exists()
    assert counters.exists()
    await workers.stop(0.1)
    assert workers.pids() == []


async def test_the_pause_grows(tmp_path: Path, fds: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)
    workers, said = make(tmp_path, fds, "print('last words'); raise SystemExit(1)")
    workers.start()
    await until(lambda: len(said) >= 3)
    await workers.stop(0.1)
    assert [line.rpartition("again in ")[2] for line in said[:3]] == ["0.01 s", "0.02 s", "0.04 s"]
    assert "code 1: last words" in said[0]


async def test_a_worker_that_cannot_start_is_not_started_again(tmp_path: Path, fds: tuple[int, int]) -> None:
    workers, _ = make(tmp_path, fds, "print('no such model'); raise SystemExit(2)")
    workers.start()
    async with asyncio.timeout(60):
        assert "no such model" in await workers.failed
    await workers.stop(0.1)


async def test_stop_waits_for_a_worker_that_drains(tmp_path: Path, fds: tuple[int, int]) -> None:
    program = (
        "import signal, sys, time\n"
        f"def end(*_): time.sleep(0.5); open({str(tmp_path / 'drained')!r}, 'w').close(); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end); print('up', flush=True)\n"
        "while True: time.sleep(1)"
    )
    workers, said = make(tmp_path, fds, program)
    workers.start()
    await until(lambda: (tmp_path / "0.log").exists() and "up" in (tmp_path / "0.log").read_text())
    await workers.stop(60)
    assert (tmp_path / "drained").exists()
    assert said == []


async def test_kill_ends_a_worker_that_will_not(tmp_path: Path, fds: tuple[int, int]) -> None:
    program = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(1000)"
    workers, _ = make(tmp_path, fds, program)
    workers.start()
    await until(lambda: (tmp_path / "0.log").exists() and "up" in (tmp_path / "0.log").read_text())
    stopping = asyncio.create_task(workers.stop(1000))
    await asyncio.sleep(0)
    workers.kill()
    async with asyncio.timeout(60):
        await stopping
    assert workers.pids() == []


async def test_a_worker_that_the_system_cannot_start_now_is_started_later(
    tmp_path: Path, fds: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)
    workers, said = make(tmp_path, fds, "import time; time.sleep(1000)")
    good, workers._argv = workers._argv, [str(tmp_path / "none-such")]
    workers.start()
    await until(lambda: len(said) >= 2)
    assert "worker 0 cannot be started: " in said[0]
    workers._argv = good
    await until(lambda: len(workers.pids()) == 1)
    await workers.stop(0.1)


async def test_a_worker_whose_log_cannot_be_opened_runs_without(tmp_path: Path, fds: tuple[int, int]) -> None:
    workers, said = make(tmp_path, fds, "import time; time.sleep(1000)")
    (tmp_path / "0.log").mkdir()
    workers.start()
    await until(lambda: len(workers.pids()) == 1)
    assert "no log in" in said[0]
    await workers.stop(0.1)

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from backends.process import guard
from backends.process.backoff import Backoff
from backends.process.supervisor import ProcessState, Supervisor
from backends.processes import ProcessSpec

SLEEP = (sys.executable, "-c", "import time; print('hello', flush=True); time.sleep(600)")
QUICK = Backoff(first_s=0.05, factor=2, max_s=0.4, jitter=0)


class Tree(Protocol):
    pids: list[int]

    def argv(self, mode: str = "plain") -> list[str]: ...
    def wait_up(self) -> list[int]: ...
    def wait_gone(self, seconds: float = 30.0) -> None: ...
    def clear(self) -> None: ...


class Listener:
    """Keeps every state and wakes those who wait for one."""

    def __init__(self) -> None:
        self.seen: list[ProcessState] = []
        self._news = asyncio.Condition()

    async def __call__(self, state: ProcessState) -> None:
        async with self._news:
            self.seen.append(state)
            self._news.notify_all()

    async def wait(self, condition: Callable[[list[ProcessState]], bool], seconds: float = 30.0) -> None:
        async with asyncio.timeout(seconds), self._news:
            await self._news.wait_for(lambda: bool(self.seen) and condition(self.seen))


def _spec(name: str = "g@int4/0", argv: tuple[str, ...] = SLEEP, **fields: object) -> ProcessSpec:
    return ProcessSpec(name=name, argv=argv, url="http://127.0.0.1:1", **fields)  # type: ignore[arg-type]


async def test_it_starts_reports_and_stops(tmp_path: Path) -> None:
    listener = Listener()
    supervisor = Supervisor([_spec(), _spec("g@int8/0")], logs=tmp_path, on_change=listener)
    await supervisor.start()
    await listener.wait(lambda seen: sum(s.ready for s in seen) == 2)
    states = supervisor.states()
    assert all(s.running and s.ready and s.restarts == 0 and s.last_exit is None for s in states.values())
    pids = [s.pid for s in states.values()]
    await supervisor.stop()
    assert all(not s.running and s.phase == "stopped" for s in supervisor.states().values())
    # On a busy machine a process that has hardly begun may not live to see the SIGTERM.
    assert supervisor.states()["g@int4/0"].last_exit in (128 + signal.SIGTERM, 128 + signal.SIGKILL)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    await supervisor.stop()


async def test_output_is_kept(tmp_path: Path) -> None:
    async with Supervisor([_spec()], logs=tmp_path / "logs") as supervisor:
        assert supervisor.log_path("g@int4/0") == tmp_path / "logs" / "g@int4-0.log"
        async with asyncio.timeout(60):
            while "hello" not in supervisor.tail("g@int4/0"):
                await asyncio.sleep(0.02)
    assert supervisor.tail("g@int4/0", 3) == "lo\n"


async def test_the_tail_begins_with_the_last_start(tmp_path: Path) -> None:
    listener = Listener()
    spec = _spec(argv=("/bin/sh", "-c", "echo of life $$; exit 1"))
    async with Supervisor([spec], logs=tmp_path, on_change=listener, backoff=QUICK) as supervisor:
        await listener.wait(lambda seen: seen[-1].restarts >= 3)
    assert supervisor.tail("g@int4/0").count("of life") == 1
    assert supervisor.log_path("g@int4/0").read_text().count("of life") >= 3


async def test_environment_and_log_of_the_spec_are_taken(tmp_path: Path) -> None:
    listener = Listener()
    argv = (sys.executable, "-c", "import os; print(os.environ['PRECISION'], os.environ['HOME'])")
    log = tmp_path / "deep" / "own.log"
    spec = _spec(argv=argv, env={"PRECISION": "int4"}, log=log)
    async with Supervisor([spec], logs=tmp_path, on_change=listener):
        await listener.wait(lambda seen: any(s.last_exit == 0 for s in seen))
    assert f"int4 {os.environ['HOME']}" in log.read_text()


async def test_it_starts_again_with_growing_delays(tmp_path: Path) -> None:
    listener = Listener()
    spec = _spec(argv=(sys.executable, "-S", "-c", "raise SystemExit(3)"))
    async with Supervisor([spec], logs=tmp_path, on_change=listener, backoff=QUICK) as supervisor:
        await listener.wait(lambda seen: seen[-1].restarts >= 5)
        assert supervisor.states()["g@int4/0"].last_exit == 3
    phases = [s.phase for s in listener.seen if "starting again" in s.phase]
    assert phases[:4] == [f"ended with exit code 3, starting again in {d} s" for d in ("0.1", "0.1", "0.2", "0.4")]
    assert phases[4].endswith("in 0.4 s")


async def test_a_long_life_begins_the_count_anew(tmp_path: Path) -> None:
    listener = Listener()
    backoff = Backoff(first_s=0.05, factor=100, max_s=100, jitter=0, healthy_s=0.0)
    spec = _spec(argv=(sys.executable, "-S", "-c", "raise SystemExit(0)"))
    async with Supervisor([spec], logs=tmp_path, on_change=listener, backoff=backoff):
        await listener.wait(lambda seen: seen[-1].restarts >= 4)


async def test_a_killed_engine_comes_back(tmp_path: Path, tree: Tree) -> None:
    listener = Listener()
    spec = _spec(argv=tuple(tree.argv()))
    # The daemon ignores SIGTERM: it is given the grace whole, twice.
    async with Supervisor([spec], logs=tmp_path, on_change=listener, backoff=QUICK, grace_s=1) as supervisor:
        first = await asyncio.to_thread(tree.wait_up)
        guarded = supervisor.states()["g@int4/0"].pid
        assert guarded is not None
        (root,) = (p for p, _, parent, _ in guard.process_table() if parent == guarded and p in first and _is_root(p))
        tree.clear()
        os.kill(root, signal.SIGKILL)
        await listener.wait(lambda seen: any(s.last_exit == 128 + signal.SIGKILL for s in seen))
        assert "ended by SIGKILL" in next(s.phase for s in listener.seen if s.last_exit is not None)
        await asyncio.to_thread(tree.wait_up)
        assert not any(Path(f"/proc/{p}").exists() for p in first)
    await asyncio.to_thread(tree.wait_gone)


def _is_root(pid: int) -> bool:
    return (
        Path(f"/proc/{pid}/cmdline").read_bytes().endswith(b"plain\0")
        and b"leaf" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    )


async def test_a_killed_guard_leaves_nothing(tmp_path: Path, tree: Tree) -> None:
    listener = Listener()
    spec = _spec(argv=(sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *tree.argv()))
    async with Supervisor([spec], logs=tmp_path, on_change=listener, backoff=QUICK, grace_s=1) as supervisor:
        first = await asyncio.to_thread(tree.wait_up)
        guarded = supervisor.states()["g@int4/0"].pid
        assert guarded is not None
        tree.clear()
        os.kill(guarded, signal.SIGKILL)
        await listener.wait(lambda seen: any(s.last_exit is not None for s in seen))
        try:
            assert not [p for p in first if alive(p) and _session(p) == guarded]
        finally:
            for pid in first:
                # The daemon left guard and session both: only a living guard could have found it.
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    return any(p == pid and state != "Z" for p, state, _, _ in guard.process_table())


def _session(pid: int) -> int:
    return next((session for p, _, _, session in guard.process_table() if p == pid), 0)


async def test_stop_ends_what_ignores_sigterm(tmp_path: Path, tree: Tree) -> None:
    supervisor = Supervisor([_spec(argv=tuple(tree.argv("stubborn")))], logs=tmp_path, grace_s=0.5)
    await supervisor.start()
    await asyncio.to_thread(tree.wait_up)
    await asyncio.wait_for(supervisor.stop(), 60)
    tree.wait_gone()


async def test_stop_while_waiting_to_start_again(tmp_path: Path) -> None:
    listener = Listener()
    spec = _spec(argv=("/bin/false",))
    supervisor = Supervisor([spec], logs=tmp_path, on_change=listener, backoff=Backoff(first_s=600))
    await supervisor.start()
    await listener.wait(lambda seen: seen[-1].restarts == 1)
    await asyncio.wait_for(supervisor.stop(), 60)


async def test_only_so_many_start_at_once(tmp_path: Path) -> None:
    listener = Listener()
    gates = {f"g@x/{n}": asyncio.Event() for n in range(3)}
    probing: set[str] = set()

    async def probe(spec: ProcessSpec) -> bool:
        probing.add(spec.name)
        await gates[spec.name].wait()
        return True

    specs = [_spec(n) for n in gates]
    async with Supervisor(specs, logs=tmp_path, probe=probe, on_change=listener, max_parallel_starts=1) as supervisor:
        for number, name in enumerate(gates):
            await listener.wait(lambda seen, name=name: any(s.name == name and s.running for s in seen))
            assert sum(s.running for s in supervisor.states().values()) == number + 1
            gates[name].set()
            await listener.wait(lambda seen, name=name: any(s.name == name and s.ready for s in seen))
    assert [s.name for s in listener.seen if s.phase == "ready"] == list(gates)


async def test_a_start_that_takes_too_long_is_a_failure(tmp_path: Path) -> None:
    listener = Listener()

    async def never(spec: ProcessSpec) -> bool:
        raise ConnectionRefusedError

    spec = _spec(start_timeout_s=0.3)
    async with Supervisor([spec], logs=tmp_path, probe=never, on_change=listener, backoff=QUICK, probe_interval_s=0.02):
        await listener.wait(lambda seen: seen[-1].restarts >= 2)
    assert any(s.phase.startswith("not ready after 0 s, starting again") for s in listener.seen)
    assert not any(s.ready for s in listener.seen)


async def test_a_command_that_is_not_there_is_told(tmp_path: Path) -> None:
    listener = Listener()
    async with Supervisor([_spec(argv=("/no/such",))], logs=tmp_path, on_change=listener, backoff=QUICK) as supervisor:
        await listener.wait(lambda seen: seen[-1].restarts >= 1)
        assert "cannot start /no/such" in supervisor.tail("g@int4/0")
    assert any("could not be started" in s.phase for s in listener.seen)


async def test_a_listener_that_fails_stops_nothing(tmp_path: Path) -> None:
    calls = 0

    async def fails(state: ProcessState) -> None:
        nonlocal calls
        calls += 1
        raise RuntimeError("display is gone")

    async with Supervisor([_spec()], logs=tmp_path, on_change=fails) as supervisor:
        async with asyncio.timeout(60):
            while not supervisor.states()["g@int4/0"].ready:
                await asyncio.sleep(0.01)
    assert calls >= 3


async def test_names_must_differ(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not unique"):
        Supervisor([_spec(), _spec()], logs=tmp_path)


async def test_it_is_started_once(tmp_path: Path) -> None:
    async with Supervisor([_spec()], logs=tmp_path) as supervisor:
        with pytest.raises(RuntimeError, match="started already"):
            await supervisor.start()


PARENT = """
import asyncio, sys
from pathlib import Path
from backends.process.supervisor import Supervisor
from backends.processes import ProcessSpec
async def main():
    specs = [ProcessSpec(name="g@int4/0", argv=tuple(sys.argv[2:]), url="http://127.0.0.1:1")]
    async with Supervisor(specs, logs=Path(sys.argv[1]), grace_s=1):
        await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.parametrize("mode", ["plain", "stubborn"])
def test_no_orphan_after_sigkill_of_the_supervisor(tmp_path: Path, tree: Tree, mode: str) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path / "logs"), *tree.argv(mode)])
    pids = tree.wait_up()
    parent.kill()
    parent.wait(30)
    tree.wait_gone()
    assert len(pids) >= 3

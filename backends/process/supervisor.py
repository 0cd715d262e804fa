"""Keeps server processes running: starts them under guards, starts them again when they end, ends them all at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import re
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from backends.process import guard
from backends.process.backoff import Backoff
from backends.processes import ProcessSpec

logger = logging.getLogger(__name__)

Probe = Callable[[ProcessSpec], Awaitable[bool]]
"""Whether a server is ready: a real answer, never just an open port."""
_KILL_MARGIN_S = 5.0
"""How much longer than the grace time a guard may take before it is killed itself."""


@dataclass(frozen=True)
class ProcessState:
    """What is known of one supervised process."""

    name: str
    pid: int | None = None
    """Process id of its guard, which leads its session; None while it doesn't run."""
    running: bool = False
    ready: bool = False
    """It runs and its probe has succeeded (without a probe: it runs)."""
    restarts: int = 0
    last_exit: int | None = None
    """Exit code of its last end: the command's own, or 128 plus the signal that ended it."""
    since: float = 0.0
    """Unix time of the last change."""
    phase: str = "waiting"
    """The same in words: waiting, starting, ready, ended (...), stopping, stopped."""


OnChange = Callable[[ProcessState], Awaitable[None]]


class Supervisor:
    """Runs a set of processes. `start` returns at once; `stop` returns when nothing of them is left.

    At most `max_parallel_starts` processes are between start and readiness at a time (0: no limit). A process that
    isn't ready within its `start_timeout_s` is ended and counts as failed. It never gives up: the delay between starts
    grows to `backoff.max_s` and `states` tells what happens.
    """

    def __init__(
        self,
        specs: Sequence[ProcessSpec],
        *,
        logs: Path,
        probe: Probe | None = None,
        on_change: OnChange | None = None,
        max_parallel_starts: int = 0,
        grace_s: float = 20.0,
        backoff: Backoff | None = None,
        probe_interval_s: float = 0.5,
        log_bytes: int = 16 << 20,
        log_files: int = 3,
    ) -> None:
        names = [s.name for s in specs]
        if len(set(names)) != len(names):
            raise ValueError(f"process names are not unique: {sorted(names)}")
        self._specs = {s.name: s for s in specs}
        self._logs, self._probe, self._on_change = logs, probe, on_change
        self._slots = asyncio.Semaphore(max_parallel_starts or max(1, len(names)))
        self._grace, self._backoff, self._probe_interval = grace_s, backoff or Backoff(), probe_interval_s
        self._log_bytes, self._log_files = log_bytes, log_files
        self._random = random.Random()
        self._states = {n: ProcessState(n, since=time.time()) for n in names}
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Supervisor:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Begin to start the processes, in the order given."""
        if self._tasks:
            raise RuntimeError("this supervisor has been started already")
        self._logs.mkdir(parents=True, exist_ok=True)
        self._tasks = [asyncio.create_task(self._keep(s), name=f"supervise {s.name}") for s in self._specs.values()]

    def states(self) -> dict[str, ProcessState]:
        """The state of each process now, by name."""
        return dict(self._states)

    async def stop(self) -> None:
        """End all processes, together: SIGTERM, `grace_s`, SIGKILL. Nothing is left when it returns. Safe to call twice."""
        self._stopping.set()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                logger.error("supervising failed", exc_info=result)

    def log_path(self, name: str) -> Path:
        """The file that has a process's output (older output beside it, `.1`, `.2`)."""
        return self._specs[name].log or self._logs / f"{re.sub(r'[^A-Za-z0-9._@-]+', '-', name)}.log"

    def tail(self, name: str, size: int = 8192) -> str:
        """The last `size` bytes of a process's output since its last start; empty while there is none."""
        try:
            with self.log_path(name).open("rb") as handle:
                handle.seek(max(0, handle.seek(0, os.SEEK_END) - size))
                text = handle.read().decode(errors="replace")
        except OSError:
            return ""
        mark = text.rfind(guard.START_MARK)
        return text if mark < 0 else text[mark:].partition("\n")[2]

    async def _keep(self, spec: ProcessSpec) -> None:
        """Start one process again and again until `stop`."""
        failures = 0
        while not self._stopping.is_set():
            healthy = await self._run_once(spec)
            failures = 1 if healthy else failures + 1
            if self._stopping.is_set():
                break
            delay = self._backoff.delay(failures, self._random)
            state = self._states[spec.name]
            await self._change(
                spec, restarts=state.restarts + 1, phase=f"{state.phase}, starting again in {delay:.1f} s"
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay)
        await self._change(spec, phase="stopped")

    async def _run_once(self, spec: ProcessSpec) -> bool:
        """One life of a process; True if it was up for long enough to count as healthy."""
        ready_at: float | None = None
        ended: asyncio.Task[int] | None = None
        child: _Child | None = None
        try:
            async with self._slots:
                if self._stopping.is_set():
                    return True
                try:
                    child = await _spawn(spec, self.log_path(spec.name), self._grace, self._log_bytes, self._log_files)
                except OSError as error:
                    await self._change(spec, phase=f"cannot be started: {error}")
                    return False
                ended = asyncio.create_task(child.process.wait())
                await self._change(spec, pid=child.process.pid, running=True, phase="starting")
                if await self._becomes_ready(spec, ended):
                    ready_at = time.monotonic()
                    await self._change(spec, ready=True, phase="ready")
            if ready_at is not None:
                await self._first(ended)
            await self._end(spec, child, ended)
            return ready_at is not None and time.monotonic() - ready_at >= self._backoff.healthy_s
        finally:
            if child is not None and ended is not None and not ended.done():
                # Cancelled in the middle: the closed pipe makes the guard end the tree by itself.
                ended.cancel()
                child.close()

    async def _becomes_ready(self, spec: ProcessSpec, ended: asyncio.Task[int]) -> bool:
        if self._probe is None:
            return True
        deadline = time.monotonic() + spec.start_timeout_s
        while not ended.done() and not self._stopping.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                await self._change(spec, phase=f"not ready after {spec.start_timeout_s:.0f} s")
                return False
            probing = asyncio.create_task(_probe(self._probe, spec))
            await self._first(ended, probing, timeout=left)
            if not probing.done():
                probing.cancel()
                continue
            if probing.result():
                return True
            await self._first(ended, timeout=min(self._probe_interval, left))
        return False

    async def _first(self, *tasks: asyncio.Task[int] | asyncio.Task[bool], timeout: float | None = None) -> None:
        """Wait for one of the tasks, for the order to stop, or for the time to pass."""
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({*tasks, stop}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()

    async def _end(self, spec: ProcessSpec, child: _Child, ended: asyncio.Task[int]) -> None:
        """Make sure that a process and all its descendants are gone, and note how it ended."""
        phase = self._states[spec.name].phase
        if not ended.done():
            await self._change(spec, ready=False, phase="stopping" if self._stopping.is_set() else phase)
            with contextlib.suppress(ProcessLookupError):
                child.process.terminate()
            await asyncio.wait({ended}, timeout=self._grace + _KILL_MARGIN_S)
        if not ended.done():
            with contextlib.suppress(ProcessLookupError):
                child.process.kill()
        code = await ended
        child.close()
        await _end_session(child.process.pid)
        words = phase if phase.startswith("not ready") else _words(code)
        await self._change(
            spec, pid=None, running=False, ready=False, last_exit=code if code >= 0 else 128 - code, phase=words
        )

    async def _change(self, spec: ProcessSpec, **fields: object) -> None:
        state = replace(self._states[spec.name], since=time.time(), **fields)  # type: ignore[arg-type]
        self._states[spec.name] = state
        if self._on_change is not None:
            try:
                await self._on_change(state)
            except Exception:
                logger.exception("a listener failed on %s", state)


@dataclass
class _Child:
    """A guard and our end of its pipe."""

    process: asyncio.subprocess.Process
    pipe: int | None

    def close(self) -> None:
        """Let go of the pipe."""
        if self.pipe is not None:
            os.close(self.pipe)
            self.pipe = None


async def _spawn(spec: ProcessSpec, log: Path, grace_s: float, log_bytes: int, log_files: int) -> _Child:
    read, write = os.pipe()
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        # By path, isolated and without site-packages: nothing installed can slow or break it.
        command = [sys.executable, "-I", "-S", str(Path(guard.__file__).resolve())]
        command += ["--parent", str(os.getpid()), "--fd", str(read), "--grace", str(grace_s)]
        command += ["--log", str(log), "--log-bytes", str(log_bytes), "--log-files", str(log_files), "--", *spec.argv]
        with log.open("ab") as complaints:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=complaints,
                stderr=complaints,
                env={**os.environ, **spec.env},
                pass_fds=(read,),
                # Its own session: a terminal's Ctrl-C reaches the parent alone, which then stops in order.
                start_new_session=True,
            )
    except BaseException:
        os.close(write)
        raise
    finally:
        os.close(read)
    return _Child(process, write)


async def _end_session(session: int) -> None:
    """Kill what a killed guard has left in its session, and wait until it is gone (a guard that ended leaves nothing)."""
    while left := [pid for pid, state, _, of in guard.process_table() if of == session and state != "Z"]:
        guard.send(left, signal.SIGKILL)
        await asyncio.sleep(0.02)


async def _probe(probe: Probe, spec: ProcessSpec) -> bool:
    try:
        return await probe(spec)
    except Exception as error:
        logger.debug("probe of %s: %r", spec.name, error)
        return False


def _words(code: int) -> str:
    """An exit code for people."""
    number = -code if code < 0 else code - 128
    if code < 0 or 128 < code <= 128 + 64:
        try:
            return f"ended by {signal.Signals(number).name}"
        except ValueError:
            return f"ended by signal {number}"
    if code == 127:
        return "could not be started (exit code 127; the log says why)"
    return f"ended with exit code {code}"

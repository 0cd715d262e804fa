"""The proxy's worker processes: started on shared sockets, restarted with backoff, drained at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO

from backends.process.guard import die_with_parent

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STEADY_S = 30.0
"""A worker that lived this long starts its backoff anew, seconds."""
CANNOT_START = 2
"""A worker's exit code that no restart can mend."""


class Workers:
    """`count` processes of `python -m router.worker`.

    `log` gives the file of a worker's output (None: this process's own stderr). `on_line` is told what happens.
    """

    def __init__(
        self,
        count: int,
        runtime: Path,
        *,
        api_fd: int,
        admin_fd: int,
        env: Mapping[str, str],
        log: Callable[[int], Path | None],
        on_line: Callable[[str], None],
    ) -> None:
        self._count = count
        # -P: a file of the operator's folder must not take the place of a module.
        self._argv = [sys.executable, "-P", "-m", "router.worker", "--runtime", str(runtime)]
        self._argv += ["--api-fd", str(api_fd), "--admin-fd", str(admin_fd)]
        self._fds = (api_fd, admin_fd)
        self._env = dict(env)
        self._log = log
        self._on_line = on_line
        self._stopping = asyncio.Event()
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done, with the reason, when a worker cannot start at all."""

    def start(self) -> None:
        """Start all, and keep them running."""
        self._tasks = [asyncio.create_task(self._keep(n), name=f"worker {n}") for n in range(self._count)]

    def pids(self) -> list[int]:
        """Process ids of the living workers."""
        return [p.pid for p in self._processes.values() if p.returncode is None]

    async def stop(self, drain_s: float) -> None:
        """Let running requests end for at most `drain_s` seconds, then end the workers."""
        self._stopping.set()
        self._signal(signal.SIGTERM)
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=drain_s + 3)
        if late:
            self._signal(signal.SIGKILL)
            await asyncio.wait(late)
        self.failed.cancel()

    def kill(self) -> None:
        """End the workers at once, whatever they do."""
        self._stopping.set()
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(number)

    async def _keep(self, number: int) -> None:
        pause = FIRST_PAUSE_S
        while not self._stopping.is_set():
            began = time.monotonic()
            code = None
            try:
                code = await self._once(number)
                reason = f"worker {number} ended with code {code}: {self._tail(number)}"
            except OSError as error:
                # No memory, no process or no descriptor left: that passes.
                reason = f"worker {number} cannot be started: {error}"
            if self._stopping.is_set():
                return
            if code == CANNOT_START:
                if not self.failed.done():
                    self.failed.set_result(reason)
                return
            pause = FIRST_PAUSE_S if time.monotonic() - began > STEADY_S else pause
            self._on_line(f"{reason}; again in {pause:g} s")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
            pause = min(pause * 2, LONGEST_PAUSE_S)

    async def _once(self, number: int) -> int:
        output = self._output(number)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT if output is not None else None,
                env=self._env,
                pass_fds=self._fds,
                # Ctrl-C is for the parent alone, which drains.
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGTERM),
            )
        finally:
            if output is not None:
                output.close()
        self._processes[number] = process
        if self._stopping.is_set():
            self._signal(signal.SIGTERM)
        code = await process.wait()
        self._forget_gauges(process.pid)
        return code

    def _output(self, number: int) -> IO[bytes] | None:
        """The worker's log, open; None where it writes to this process's stderr."""
        path = self._log(number)
        try:
            return path.open("ab") if path is not None else None
        except OSError as error:
            self._on_line(f"worker {number}: no log in {path} ({error.strerror}); it writes to standard error")
            return None

    def _forget_gauges(self, pid: int) -> None:
        """A dead worker's live gauges no longer count (prometheus-client's files, one set a process)."""
        folder = self._env.get("PROMETHEUS_MULTIPROC_DIR")
        for file in Path(folder).glob(f"gauge_live*_{pid}.db") if folder else ():
            file.unlink(missing_ok=True)

    def _tail(self, number: int) -> str:
        path = self._log(number)
        if path is None:
            return "its output is above"
        with contextlib.suppress(OSError):
            lines = path.read_text(errors="replace").strip().splitlines()
            return f"{lines[-1]} (more in {path})" if lines else f"{path} is empty"
        return f"no log in {path}"


__all__ = ["Workers"]

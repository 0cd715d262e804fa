"""Everything `bitgear up` and `bitgear serve` start, in order, and end again: Valkey, workers, model servers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from backends.processes import PlanError, VariantPlan
from backends.vllm.machine import Machine
from router.cli.common import reachable
from router.cli.display import Display
from router.cli.operator import write_own
from router.cli.rundir import run_folder
from router.cli.servers import serve_models
from router.cli.workers import Workers
from router.config.runtime import Runtime, RuntimeVariant
from router.config.schema import Config
from router.listening import keep_out
from router.store.valkey import PrivateValkey, ValkeyError

LOGS = "logs"
"""Folder of the home with the logs."""
METRICS = "metrics"
"""Folder of one run with what workers count together."""


@dataclass
class Stack:
    """What is to be started. `log_workers`: workers write to files, otherwise to this process's stderr."""

    config: Config
    variants: tuple[RuntimeVariant, ...]
    plans: tuple[VariantPlan, ...]
    machine: Machine | None
    python: str
    api: socket.socket
    admin: socket.socket
    display: Display
    log_workers: bool
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @cached_property
    def token(self) -> str:
        """The admin token of this run, beside those of the configuration."""
        return secrets.token_urlsafe(32)

    @property
    def home(self) -> Path:
        """Folder of everything that is kept."""
        return Path(self.config.local.home).expanduser()

    @property
    def api_url(self) -> str:
        """Where this machine reaches the API."""
        return reachable(self.config.server.host, self.api.getsockname()[1])

    @property
    def admin_url(self) -> str:
        """Where this machine reaches the admin API."""
        return reachable(self.config.admin.host, self.admin.getsockname()[1])

    def close_sockets(self) -> None:
        """Let nobody in any more; the workers still answer who is in."""
        for sock in (self.api, self.admin):
            if sock.fileno() >= 0:
                keep_out(sock)
            sock.close()


async def run(stack: Stack) -> int:
    """Start, wait for a signal, end everything; the exit code comes back (0 after a signal)."""
    stop = _Stop()
    stop.listen()
    with run_folder(stack.home) as folder:
        valkey = _start_valkey(stack)
        try:
            _write(stack, folder, valkey)
            async with _workers(stack, folder, stop) as workers:
                return await _serve(stack, workers, valkey, stop)
        finally:
            if valkey is not None:
                valkey.stop()


def _write(stack: Stack, folder: Path, valkey: PrivateValkey | None) -> None:
    """Write what workers read, and make the folders that they write to. Raises PlanError."""
    try:
        token_file = write_own(folder, stack.token, stack.admin_url)
        runtime = Runtime(
            config=stack.config,
            variants=stack.variants,
            redis_url=stack.config.redis.url or (valkey.url if valkey is not None else None),
            admin_token_file=str(token_file),
            control_file=str(_control_file(stack.home, stack.config.redis.url)),
        )
        runtime.write(folder / "runtime.json")
        (folder / METRICS).mkdir()
        (stack.home / LOGS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PlanError(f"local.home: cannot write in {stack.home}: {error.strerror or error}") from None
    stack.display.say(f"admin token: {token_file}")


def _control_file(home: Path, redis_url: str | None) -> Path:
    """Where the last control document is kept: one file for each Redis."""
    folder = home / "state"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = hashlib.sha256(redis_url.encode()).hexdigest()[:12] if redis_url else "private"
    return folder / f"control-{name}.json"


class _Stop:
    """The first signal asks for an orderly end, the second for an immediate one."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurry = asyncio.Event()

    def listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                # Under nohup a closed terminal is no reason to end.
                continue
            loop.add_signal_handler(number, self._signal)

    def _signal(self) -> None:
        if self.asked.is_set():
            self.hurry.set()
        self.asked.set()


def _start_valkey(stack: Stack) -> PrivateValkey | None:
    if stack.config.redis.url is not None:
        return None
    valkey = PrivateValkey(stack.home / "state")
    try:
        valkey.start()
    except (ValkeyError, OSError) as error:
        stack.display.say(f"{error}; the proxy runs without it: no events are kept")
        valkey.stop()
        return None
    return valkey


@contextlib.asynccontextmanager
async def _workers(stack: Stack, folder: Path, stop: _Stop) -> AsyncIterator[Workers]:
    logs = stack.home / LOGS
    count = stack.config.server.workers
    env = dict(stack.env)
    if count > 1:
        env["PROMETHEUS_MULTIPROC_DIR"] = str(folder / METRICS)
    else:
        env.pop("PROMETHEUS_MULTIPROC_DIR", None)
    workers = Workers(
        count,
        folder / "runtime.json",
        api_fd=stack.api.fileno(),
        admin_fd=stack.admin.fileno(),
        env=env,
        log=(lambda number: logs / f"proxy-{number}.log") if stack.log_workers else (lambda number: None),
        on_line=stack.display.say,
    )
    workers.start()
    # From now on only the workers accept.
    hurrying = asyncio.create_task(_hurry(stop, workers))
    try:
        yield workers
    finally:
        stack.close_sockets()
        await workers.stop(stack.config.server.drain_s)
        hurrying.cancel()


async def _hurry(stop: _Stop, workers: Workers) -> None:
    await stop.hurry.wait()
    workers.kill()


async def _serve(stack: Stack, workers: Workers, valkey: PrivateValkey | None, stop: _Stop) -> int:
    """Bring the variants up, print the banner, stay until a signal or until the workers cannot start."""
    asked = asyncio.create_task(stop.asked.wait())
    watch = asyncio.create_task(_watch_valkey(valkey, stack.display))
    models = asyncio.create_task(serve_models(stack))
    try:
        events: set[asyncio.Future[object]] = {asked, workers.failed, models}  # type: ignore[arg-type]
        await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
        if workers.failed.done():
            stack.display.say(workers.failed.result())
            return 1
        if asked.done():
            stack.display.say("ending: running requests may finish")
            return 0
        # The task that keeps the models running only ends by a mistake in the plan.
        models.result()
        return 1
    finally:
        # With a worker's own copies closed too, new clients are refused and not left waiting.
        stack.close_sockets()
        for task in (asked, watch):
            task.cancel()
        if not models.done():
            # The proxy drains while the models still answer; only then are they ended.
            await workers.stop(stack.config.server.drain_s)
            models.cancel()
        await asyncio.gather(asked, watch, models, return_exceptions=True)
        stack.display.close()


async def _watch_valkey(valkey: PrivateValkey | None, display: Display) -> None:
    pause = 1.0
    while valkey is not None:
        await asyncio.sleep(pause)
        if valkey.running:
            pause = 1.0
            continue
        display.say("the private Valkey server ended; starting it again")
        try:
            valkey.start(timeout_s=5)
        except (ValkeyError, OSError) as error:
            pause = min(pause * 2, 60.0)
            display.say(f"{error}; again in {pause:.0f} s")


__all__ = ["Stack", "run"]

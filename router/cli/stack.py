"""Everything `bitgear up` and `bitgear serve` start, in order, and end again: Valkey, workers, model servers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from backends.plan import parallel_starts, prepare
from backends.process.supervisor import ProcessState, Supervisor
from backends.processes import ProcessSpec, VariantPlan
from backends.vllm.machine import Machine
from backends.wire import Limits, Pool, UpstreamError, probe
from backends.wire.probe import get
from router.cli.banner import banner
from router.cli.common import reachable
from router.cli.display import Display
from router.cli.phases import phase_words
from router.cli.rundir import run_folder
from router.cli.workers import Workers
from router.config.runtime import Runtime, RuntimeVariant
from router.config.schema import Config
from router.store.valkey import PrivateValkey, ValkeyError

_LOOK_S = 0.5
_PROBE_S = 60.0
_ANSWERS_IN_A_ROW = 3
"""Per worker: sockets are shared, so only several answers show that every worker is ready."""


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
        """Accept nothing more in this process."""
        for sock in (self.api, self.admin):
            sock.close()


async def run(stack: Stack) -> int:
    """Start, wait for a signal, end everything; the exit code comes back (0 after a signal)."""
    stop = _Stop()
    stop.listen()
    with run_folder(stack.home) as folder:
        valkey = _start_valkey(stack)
        try:
            redis_url = stack.config.redis.url or (valkey.url if valkey is not None else None)
            runtime = Runtime(config=stack.config, variants=stack.variants, redis_url=redis_url)
            runtime.write(folder / "runtime.json")
            async with _workers(stack, folder, stop) as workers:
                return await _serve(stack, workers, valkey, stop)
        finally:
            if valkey is not None:
                valkey.stop()


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
    logs = stack.home / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    count = stack.config.server.workers
    env = dict(stack.env)
    if count > 1:
        metrics = folder / "metrics"
        metrics.mkdir()
        env["PROMETHEUS_MULTIPROC_DIR"] = str(metrics)
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
    models = asyncio.create_task(_models(stack, workers))
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


async def _models(stack: Stack, workers: Workers) -> None:
    """Make checkpoints, start servers, wait until they serve, print the banner, stay until cancelled."""
    for name, group in stack.config.groups.items():
        if any(b.kind == "vllm" for b in group.backends):

            def progress(message: str, fraction: float | None, name: str = name) -> None:
                stack.display.update(f"{name} checkpoints", message, fraction)

            await prepare(
                name, group.base_model, group.backends, home=stack.home, python=stack.python, progress=progress
            )
            stack.display.done(f"{name} checkpoints", "ready")
    specs = [process for plan in stack.plans for process in plan.processes]
    supervisor = Supervisor(
        specs,
        logs=stack.home / "logs",
        probe=_Prober({p.name: plan for plan in stack.plans for p in plan.processes}),
        on_change=_Teller(stack.display),
        max_parallel_starts=parallel_starts(stack.machine, stack.plans) if stack.machine is not None else 0,
        grace_s=10,
    )
    async with supervisor:
        await _until_ready(stack, supervisor)
        await _until_answering(stack)
        stack.display.settle()
        words = {f"{p.group}@{p.variant}": p.checkpoint for p in stack.plans}
        running = {v.pinned: ", ".join(v.urls) for v in stack.variants if v.kind == "openai"}
        text = banner(stack.api_url, stack.admin_url, stack.variants, {**running, **words}, stack.home / "logs")
        _print(text)
        await asyncio.Event().wait()


def _print(text: str) -> None:
    import typer

    typer.echo(text)


class _Prober:
    """A server is ready after a real completion; a hosted model is billed, so its sidecar only has to be there."""

    def __init__(self, plans: Mapping[str, VariantPlan]) -> None:
        self._plans = plans

    async def __call__(self, spec: ProcessSpec) -> bool:
        plan = self._plans[spec.name]
        pool = Pool(spec.url)
        try:
            if plan.kind == "litellm":
                status, _ = await get(pool, b"/health", [], Limits(2.0, 10.0, 10.0, 10.0))
                return status == 200
            await probe(pool, plan.served_model, [], _PROBE_S)
        except UpstreamError:
            return False
        finally:
            pool.close()
        return True


class _Teller:
    """Says what becomes of each server: while they start in the display, later in lines that stay."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._was_ready: set[str] = set()

    async def __call__(self, state: ProcessState) -> None:
        if state.ready and state.name not in self._was_ready:
            self._was_ready.add(state.name)
            self._display.done(state.name, "ready")
        elif state.name in self._was_ready or state.restarts:
            self._display.say(f"{state.name}: {state.phase}")
        else:
            self._display.update(state.name, state.phase)


async def _until_ready(stack: Stack, supervisor: Supervisor) -> None:
    """Show each start's phase until all servers have been ready once."""
    waiting = {process.name: plan for plan in stack.plans for process in plan.processes}
    told: dict[str, int] = {}
    while waiting:
        for name, state in supervisor.states().items():
            if name not in waiting:
                continue
            if state.ready:
                del waiting[name]
            elif state.running:
                tail = supervisor.tail(name)
                stack.display.update(name, phase_words(waiting[name].kind, state.phase, tail))
            if state.restarts > told.get(name, 0) and not state.ready:
                told[name] = state.restarts
                stack.display.say(f"{name} has ended {state.restarts} times before it was ready; its last words:")
                stack.display.say(_last_words(supervisor.tail(name), supervisor.log_path(name)))
        if waiting:
            await asyncio.sleep(_LOOK_S)


def _last_words(tail: str, path: Path) -> str:
    lines = [line for line in tail.splitlines() if line.strip()]
    return "\n".join([*(f"    {line[:200]}" for line in lines[-5:]), f"    (more in {path})"])


async def _until_answering(stack: Stack) -> None:
    """Wait until every worker has found the launched servers ready (running servers are not waited for)."""
    launched = {v.pinned for v in stack.variants if v.kind != "openai"}
    seen = 0
    began = time.monotonic()
    while seen < _ANSWERS_IN_A_ROW * stack.config.server.workers:
        ready = await _ready_variants(stack.admin_url)
        if ready is not None and launched <= ready:
            seen += 1
            continue
        seen = 0
        if time.monotonic() - began > 2:
            stack.display.update("proxy", "finding its variants")
        await asyncio.sleep(0.1)


async def _ready_variants(admin_url: str) -> set[str] | None:
    """Pinned names of the variants that one worker serves now; None while none answers."""
    try:
        # A new connection each time, so that another worker may answer.
        async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
            answer = (await client.get(f"{admin_url}/admin/variants")).json()
        return {f"{v['group']}@{v['variant']}" for v in answer if v["ready"]}
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return None


__all__ = ["Stack", "run"]

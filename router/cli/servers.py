"""The model servers of a stack: checkpoints, starts, readiness, the banner."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import typer

from backends.plan import parallel_starts, prepare
from backends.process.supervisor import ProcessState, Supervisor
from backends.processes import ProcessSpec, VariantPlan
from backends.wire import Limits, Pool, UpstreamError, probe
from backends.wire.probe import get
from router.cli.banner import banner
from router.cli.display import Display
from router.cli.phases import phase_words

if TYPE_CHECKING:
    from router.cli.stack import Stack

_LOOK_S = 0.5
_PROBE_S = 60.0
_ANSWERS_IN_A_ROW = 3
"""Per worker: sockets are shared, so only several answers show that every worker is ready."""


async def serve_models(stack: Stack) -> None:
    """Make checkpoints, start servers, wait until they serve, print the banner, stay until cancelled.

    Raises PlanError when a checkpoint cannot be made.
    """
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
        logs = stack.home / "logs" if stack.log_workers else None
        text = banner(stack.api_url, stack.admin_url, stack.variants, {**running, **words}, logs)
        typer.echo(text)
        await asyncio.Event().wait()


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
        self._ending: set[str] = set()

    async def __call__(self, state: ProcessState) -> None:
        if state.phase == "stopping" or state.name in self._ending:
            # Everything ends: that was said once for all.
            self._ending.add(state.name)
        elif state.ready and state.name not in self._was_ready:
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
        ready = await _ready_variants(stack.admin_url, stack.token)
        if ready is not None and launched <= ready:
            seen += 1
            continue
        seen = 0
        if time.monotonic() - began > 2:
            stack.display.update("proxy", "finding its variants")
        await asyncio.sleep(0.1)


async def _ready_variants(admin_url: str, token: str) -> set[str] | None:
    """Pinned names of the variants that one worker serves now; None while none answers."""
    try:
        # A new connection each time, so that another worker may answer.
        async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
            headers = {"authorization": f"Bearer {token}"}
            answer = (await client.get(f"{admin_url}/admin/variants", headers=headers)).json()
        return {f"{v['group']}@{v['variant']}" for v in answer if v["ready"]}
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return None


__all__ = ["serve_models"]

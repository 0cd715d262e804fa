"""What `up` and `serve` do with a loaded configuration: resolve, plan, open sockets, run."""

from __future__ import annotations

import asyncio
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from backends.plan import Site, detect, free_ports, plan_group, remaining
from backends.processes import PlanError, VariantPlan
from backends.vllm.engine import probe, problems
from backends.vllm.machine import Machine
from router.cli.banner import SIMULATED, plan_text
from router.cli.display import Display, make_display
from router.cli.resolve import parse_precisions, variants, with_groups
from router.cli.sockets import Address, listen
from router.cli.stack import Stack, run
from router.config.schema import Config


@dataclass(frozen=True)
class Planned:
    """Plans of all groups, and the machine that they were made for."""

    plans: tuple[VariantPlan, ...]
    machine: Machine
    python: str


def resolve(config: Config, *, model: str | None, precisions: str | None, simulate: bool) -> Config:
    """The configuration with its groups filled in. Raises PlanError."""
    chosen = parse_precisions(precisions) if precisions is not None else None
    return with_groups(config, model=model, precisions=chosen, simulate=simulate)


def plan(config: Config) -> Planned:
    """How every group will be served. Raises PlanError with the arithmetic or the missing part."""
    python = config.local.python or sys.executable
    kinds = [b.kind for group in config.groups.values() for b in group.backends]
    machine = left = detect(python if "vllm" in kinds else None)
    home = Path(config.local.home).expanduser()
    ports = free_ports(config.local.first_port)
    plans: list[VariantPlan] = []
    for name, group in config.groups.items():
        made = plan_group(name, group.base_model, group.backends, Site(home, left, ports, python))
        left = remaining(left, made)
        plans.extend(made)
    return Planned(tuple(plans), machine, python)


def dry_run(config: Config) -> str:
    """The plan and the exact commands. Raises PlanError."""
    planned = plan(config)
    proxy = f"{sys.executable} -m router.worker --runtime FILE   (x {config.server.workers})"
    return f"{plan_text(planned.plans, commands=True)}\nproxy on {config.server.host}:{config.server.port}\n  {proxy}"


def up(config: Config) -> int:
    """Start everything and stay until a signal; the exit code comes back. Raises PlanError before anything runs."""
    # Ports first: who has to choose another should learn it at once.
    api, admin = _sockets(config)
    with make_display() as display:
        display.update("plan", "looking at this machine")
        planned = plan(config)
        _check_engine(config, planned.python)
        display.done("plan", "made")
        display.say(plan_text(planned.plans, commands=False))
        if any(p.kind == "simulator" for p in planned.plans):
            display.say(SIMULATED)
        return _run(config, planned.plans, planned.machine, planned.python, api, admin, display, log_workers=True)


def serve(config: Config) -> int:
    """Start the proxy alone and stay until a signal; the exit code comes back. Raises PlanError."""
    if not config.groups:
        raise PlanError(
            "the configuration has no groups: `bitgear serve` needs running servers, `bitgear up` starts some"
        )
    variants(config, ())
    api, admin = _sockets(config)
    with make_display() as display:
        return _run(config, (), None, sys.executable, api, admin, display, log_workers=False)


def _run(
    config: Config,
    plans: tuple[VariantPlan, ...],
    machine: Machine | None,
    python: str,
    api: socket.socket,
    admin: socket.socket,
    display: Display,
    *,
    log_workers: bool,
) -> int:
    stack = Stack(
        config=config,
        variants=variants(config, plans),
        plans=plans,
        machine=machine,
        python=python,
        api=api,
        admin=admin,
        display=display,
        log_workers=log_workers,
    )
    return asyncio.run(run(stack))


def _check_engine(config: Config, python: str) -> None:
    backends = [(name, b) for name, group in config.groups.items() for b in group.backends if b.kind == "vllm"]
    if not backends:
        return
    found = problems(probe(python), int4=any(b.precision == "int4" for _, b in backends))
    if found:
        hint = "`bitgear up --simulate` needs no engine"
        raise PlanError("; ".join([*found, hint]))


def _sockets(config: Config) -> tuple[socket.socket, socket.socket]:
    api = listen(Address(config.server.host, config.server.port, "server.port", "--port"))
    try:
        return api, listen(Address(config.admin.host, config.admin.port, "admin.port", "--admin-port"))
    except PlanError:
        api.close()
        raise


__all__ = ["Planned", "dry_run", "plan", "resolve", "serve", "up"]

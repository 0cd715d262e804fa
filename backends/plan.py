"""From a group's settings to processes: which planner each kind has, and what must exist before the start."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from backends.processes import PlanError, ProcessSpec, VariantPlan
from backends.settings import BackendSettings
from backends.site import Site
from backends.vllm import plan as vllm
from backends.vllm.checkpoints import Progress, prepare
from backends.vllm.machine import Gpu, Machine, detect


class Planner(Protocol):
    """Plans all variants of one kind of one group; pure but for reading checkpoints' configurations."""

    def __call__(
        self, group: str, base_model: str | None, backends: Sequence[BackendSettings], site: Site
    ) -> list[VariantPlan]:
        """One plan per variant, in the order given. Raises PlanError."""
        ...


def _plan_running(
    group: str, base_model: str | None, backends: Sequence[BackendSettings], site: Site
) -> list[VariantPlan]:
    """Kind openai: its servers run already."""
    return []


def _plan_simulators(
    group: str, base_model: str | None, backends: Sequence[BackendSettings], site: Site
) -> list[VariantPlan]:
    """Kind simulator: one small process per replica."""

    def argv(backend: BackendSettings, port: int) -> list[str]:
        where = ["--port", str(port), "--model", backend.model or group, "--precision", backend.precision]
        where += ["--settings", backend.simulator.model_dump_json()]
        return [site.python, "-P", "-m", "backends.simulator", *where]

    words = "simulated: the answers mean nothing"
    return [_servers(group, b, site, argv, b.simulator.replicas, words, _SIMULATOR_GIB) for b in backends]


def _plan_hosted(
    group: str, base_model: str | None, backends: Sequence[BackendSettings], site: Site
) -> list[VariantPlan]:
    """Kind litellm: one sidecar per variant."""

    def argv(backend: BackendSettings, port: int) -> list[str]:
        where = ["--port", str(port), "--model", backend.model or group]
        where += ["--settings", backend.litellm.model_dump_json()]
        return [site.python, "-P", "-m", "backends.hosted", *where]

    return [_servers(group, b, site, argv, 1, f"hosted: {b.litellm.target}", _HOSTED_GIB) for b in backends]


_SIMULATOR_GIB = 0.06
_HOSTED_GIB = 0.3
"""Memory of one process of these kinds, about, GiB."""

PLANNERS: Mapping[str, Planner] = {
    "openai": _plan_running,
    "vllm": vllm.plan,
    "simulator": _plan_simulators,
    "litellm": _plan_hosted,
}
"""Kind of backend to what plans its processes. A new kind is a function and a line here."""


def plan_group(
    group: str, base_model: str | None, backends: Sequence[BackendSettings], site: Site
) -> list[VariantPlan]:
    """How a group's variants will be served, in the order given; variants that run already (kind openai) have no plan.

    Makes and starts nothing. Raises PlanError, with the arithmetic or the missing part, when it cannot work.
    """
    plans: dict[str, VariantPlan] = {}
    for kind, planner in PLANNERS.items():
        chosen = [b for b in backends if b.kind == kind]
        if chosen:
            plans.update({p.variant: p for p in planner(group, base_model, chosen, site)})
    return [plans[b.variant] for b in backends if b.variant in plans]


def free_ports(first: int, host: str = "127.0.0.1") -> Iterator[int]:
    """Ports from `first` on that nothing listens on now, each given once. Raises PlanError after the last port."""
    for port in range(first, 65536):
        if _is_free(port, host):
            yield port
    raise PlanError(f"no free port from {first} up on {host}")


def _is_free(port: int, host: str) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: a port whose last connections linger in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def parallel_starts(machine: Machine, plans: Sequence[VariantPlan]) -> int:
    """How many servers to start at once.

    vLLM's start is mostly imports, on one core each. Three small models on two cores, all up and the first up after:
    one at a time 213 s and 70 s, two 104 s and 56 s, three 95 s and 92 s. So as many as there are cores. Engines that
    profile one GPU's memory at the same time disturb each other's measurement: there, as many as there are GPUs.
    """
    if not any(p.kind == "vllm" for p in plans):
        return max(1, len(machine.cores) * 4)
    return max(1, len(machine.gpus) or len(machine.cores))


def remaining(machine: Machine, plans: Sequence[VariantPlan]) -> Machine:
    """What `plans` leave of a machine, for planning the next group."""
    gpus = list(machine.gpus)
    memory = machine.memory_gib
    for plan in plans:
        for spec in plan.processes:
            visible = spec.env.get("CUDA_VISIBLE_DEVICES", "")
            if plan.kind == "vllm" and visible:
                share = float(spec.argv[spec.argv.index("--gpu-memory-utilization") + 1])
                taken = {int(index) for index in visible.split(",")}
                gpus = [
                    replace(g, free_gib=max(0.0, g.free_gib - share * g.memory_gib)) if g.index in taken else g
                    for g in gpus
                ]
            else:
                memory -= plan.memory_gib / len(plan.processes)
    return replace(machine, memory_gib=max(0.0, memory), gpus=tuple(gpus))


def _servers(
    group: str,
    backend: BackendSettings,
    site: Site,
    argv: Callable[[BackendSettings, int], list[str]],
    replicas: int,
    words: str,
    gib: float,
) -> VariantPlan:
    specs = []
    for number in range(replicas):
        port = next(site.ports)
        name = f"{group}@{backend.variant}/{number}"
        specs.append(
            ProcessSpec(
                name=name,
                argv=tuple(argv(backend, port)),
                url=f"http://127.0.0.1:{port}",
                log=site.log(name),
                start_timeout_s=60.0,
            )
        )
    return VariantPlan(
        group=group,
        variant=backend.variant,
        precision=backend.precision,
        kind=backend.kind,
        processes=tuple(specs),
        served_model=backend.model or group,
        checkpoint=words,
        memory_gib=gib * replicas,
        arithmetic=f"{replicas} x {gib:.2f} GiB",
    )


__all__ = [
    "PLANNERS",
    "Gpu",
    "Machine",
    "Planner",
    "Progress",
    "Site",
    "detect",
    "free_ports",
    "parallel_starts",
    "plan_group",
    "prepare",
    "remaining",
]

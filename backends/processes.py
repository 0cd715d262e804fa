"""What every launched backend is to its supervisor: processes that will answer at a base URL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class ProcessSpec:
    """One server process to start."""

    name: str
    """`group@variant/replica`, unique; the log file's name derives from it."""
    argv: tuple[str, ...]
    url: str
    """Base URL without `/v1` where the server will listen."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the parent's environment."""
    log: Path | None = None
    start_timeout_s: float = 900.0


@dataclass(frozen=True)
class VariantPlan:
    """How one variant will be served."""

    group: str
    variant: str
    precision: str
    kind: str
    processes: tuple[ProcessSpec, ...]
    served_model: str
    """The name to put into `model` for these servers."""
    checkpoint: str = ""
    """Which weights, and where they come from, in words for people."""
    memory_gib: float = 0.0
    arithmetic: str = ""
    """How `memory_gib` came about, in words for people."""


class PlanError(Exception):
    """A plan that cannot work; the message holds the arithmetic or the missing part."""

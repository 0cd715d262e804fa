from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def checkpoint() -> ModuleType:
    """The module that writes small checkpoints (tests are no package)."""
    return _load("checkpoint")


@pytest.fixture
def source(checkpoint: ModuleType, tmp_path: Path) -> Path:
    """A small full-precision checkpoint."""
    made: Path = checkpoint.write(tmp_path / "source")
    return made


@pytest.fixture
def steps() -> list[tuple[str, float | None]]:
    return []


@pytest.fixture
def progress(steps: list[tuple[str, float | None]]) -> Callable[[str, float | None], None]:
    return lambda message, fraction: steps.append((message, fraction))

"""Fixtures of the command line's tests: an environment that is nobody else's, and real `bitgear` processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.router.cli.processes import Running, alive
from tests.support.admin import FakeAdmin, fake_admin


@pytest.fixture
def bitgear(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(*arguments: str, env: dict[str, str] | None = None) -> Running:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(Running(folder, *arguments, env=env))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            family = one.family()
            one.process.kill()
            one.process.wait()
            for process in alive(family):
                process.kill()


@pytest.fixture
def admin() -> Iterator[FakeAdmin]:
    with fake_admin() as server:
        yield server


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [n for n in os.environ if n.startswith("BITGEAR_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("BITGEAR_LOCAL__HOME", str(tmp_path / "home"))

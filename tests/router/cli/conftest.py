"""Fixtures of the command line's tests: an environment that is nobody else's, and real `bitgear` processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest


def until(condition: Callable[[], bool], deadline_s: float = 30) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.02)


class Running:
    """One `bitgear` process and its output."""

    def __init__(self, folder: Path, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.out = folder / "out.txt"
        self.err = folder / "err.txt"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "router.cli.main", *arguments],
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                env={**clean_environment(), "BITGEAR_LOCAL__HOME": str(folder / "home"), **(env or {})},
            )

    def text(self) -> str:
        return self.out.read_text(errors="replace") + self.err.read_text(errors="replace")

    def until_says(self, words: str, deadline_s: float = 60) -> str:
        end = time.monotonic() + deadline_s
        while words not in self.text():
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < end, self.text()
            time.sleep(0.02)
        return self.text()

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def ended(self, number: signal.Signals | None, deadline_s: float = 30) -> int:
        if number is not None:
            self.process.send_signal(number)
        return self.process.wait(deadline_s)


def clean_environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("BITGEAR_")}


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


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


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [n for n in os.environ if n.startswith("BITGEAR_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("BITGEAR_LOCAL__HOME", str(tmp_path / "home"))

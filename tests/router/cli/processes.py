"""Real `bitgear` processes for tests, and waiting for what they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil


def until(condition: Callable[[], bool], deadline_s: float = 150) -> None:
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

    def until_says(self, words: str, deadline_s: float = 150) -> str:
        end = time.monotonic() + deadline_s
        while words not in self.text():
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < end, self.text()
            time.sleep(0.02)
        return self.text()

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def ended(self, number: signal.Signals | None, deadline_s: float = 150) -> int:
        if number is not None:
            self.process.send_signal(number)
        return self.process.wait(deadline_s)


def clean_environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("BITGEAR_")}


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]

"""Where processes of a group's variants will run: what a planner needs to know beside the settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from backends.vllm.machine import Machine


@dataclass(frozen=True)
class Site:
    """One machine, with a folder and ports on it."""

    home: Path
    """Of checkpoints and logs."""
    machine: Machine
    """What is left of it."""
    ports: Iterator[int]
    """Gives a free port a server."""
    python: str
    """The interpreter that has the engine."""

    def log(self, name: str) -> Path:
        """Return the log file of the process `name`."""
        return self.home.expanduser() / "logs" / f"{re.sub(r'[^A-Za-z0-9._@-]+', '-', name)}.log"

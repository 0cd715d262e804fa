"""What a scripted upstream plays, step by step, and what it records of each request."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Send:
    """Sends these bytes as one segment, and waits until the kernel took them."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits for an event that the test sets."""

    event: asyncio.Event


@dataclass(frozen=True, slots=True)
class Sleep:
    """Waits this many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Close:
    """Closes the connection in order (FIN)."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Breaks the connection at once (RST)."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Does nothing until the test sets the exchange's `released`."""


Step = Send | Wait | Sleep | Close | Reset | Hang
Script = Sequence[Step]


def sends(pieces: Iterable[bytes], gap_s: float = 0.0) -> list[Step]:
    """One `Send` for each piece, `gap_s` apart, so that a reader in another process sees them apart too."""
    steps: list[Step] = []
    for piece in pieces:
        if steps and gap_s:
            steps.append(Sleep(gap_s))
        steps.append(Send(piece))
    return steps


@dataclass(slots=True, eq=False)
class Exchange:
    """One recorded request and what became of its connection."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    head: bytes
    body: bytes
    connection: int
    """Number of the connection it came on: two requests with the same number shared it."""
    under_test: bool = False
    """False for probes, health checks and readings of metrics."""
    received_at: float = field(default_factory=time.monotonic)
    sent: int = 0
    """Bytes that the kernel has taken."""
    released: asyncio.Event = field(default_factory=asyncio.Event)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client closed or reset the connection before the script ended."""
    done: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when nothing more will be sent: the script ended, or the client left."""
    closed_at: float | None = None

    def header(self, name: str) -> str | None:
        """The last value of a header, by lower-case name."""
        return next((v for n, v in reversed(self.headers) if n == name), None)

    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)

"""An answer's bytes as they pass, kept until it is known whether they are worth keeping."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, cast

from router.cache.answers import checked
from router.cache.assemble import assembling
from router.cache.entry import Entry

_STREAM_FACTOR = 16
"""Bytes of a stream to those of the same answer as a plain one, at most: each chunk repeats its head."""


class Asked(NamedTuple):
    """What of the request decides whether its answer is whole."""

    kind: str
    limited: bool
    """Whether the request itself limits the answer's length."""


class Capture:
    """Takes a replica's own bytes while they are relayed; forgets everything once they are too many."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._left = 0
        self._streamed = False
        self._complete = False

    def begin(self, streamed: bool) -> None:
        """Begin (again): an attempt that another replica takes over leaves nothing behind."""
        self._pieces.clear()
        self._left = self._max_bytes * (_STREAM_FACTOR if streamed else 1)
        self._streamed, self._complete = streamed, False

    def add(self, piece: bytes) -> None:
        """Take one piece."""
        if self._left < 0:
            return
        self._left -= len(piece)
        if self._left < 0:
            self._pieces.clear()
            return
        self._pieces.append(piece)

    def end(self) -> None:
        """Say that the answer came to its proper end."""
        self._complete = True

    async def answer(self, asked: Asked, variant: str, served: str, now_ms: int) -> Entry | None:
        """Return the entry to keep; None where the answer was cut, too large, an error, refused or unclear."""
        if not self._complete or self._left < 0 or not self._pieces:
            return None
        body: bytes | None = b"".join(self._pieces)
        if self._streamed:
            body = await _assembled(body or b"", asked.kind)
        if body is None or len(body) > self._max_bytes:
            return None
        usage = checked(body, asked.kind, asked.limited)
        if usage is None:
            return None
        return Entry(asked.kind, variant, served, usage.prompt_tokens, usage.completion_tokens, now_ms, body)


async def _assembled(raw: bytes, kind: str) -> bytes | None:
    steps = assembling(raw, kind)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("bytes | None", end.value)
        await asyncio.sleep(0)

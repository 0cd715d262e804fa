"""Other wordings found by a model's vectors: an index in each worker, fed from a stream in Redis that all write to.

Two questions can only meet where all but the last turn, and what the guard keeps of that turn, is equal. Among those the
one with the nearest vector is taken, if it is near enough.
"""

from __future__ import annotations

import asyncio
import logging
import math
import struct
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from urllib.parse import quote

import orjson

from router.cache.entry import Entry, Format, UnreadableEntry
from router.cache.key import VECTORS_PREFIX, Key, Place, request_key
from router.cache.secret import CacheSetupError
from router.cache.semantic.content import content
from router.cache.semantic.embedding import Embedder
from router.cache.semantic.guard import core
from router.cache.semantic.index import Candidate, Index
from router.cache.semantic.turn import last_turn, without_turn
from router.cache.store import Store
from router.config.runtime import Runtime
from router.config.semantic import EmbeddingConfig, SemanticConfig

_KIND = "vector"
_BATCH = 50
_POLL_S = 0.5
"""Between two looks at what other workers wrote, seconds."""


@dataclass(slots=True)
class Turn:
    """One request's last turn, to be compared by its vector."""

    group: str
    bucket: str
    """Names everything that must be equal."""
    words: tuple[int, ...]
    text: str
    vector: tuple[float, ...] | None = None
    """Once it is known."""


class Nearest:
    """One group's vectors in one worker."""

    def __init__(
        self, group: str, settings: SemanticConfig, embedding: EmbeddingConfig, embedder: Embedder, model: str
    ) -> None:
        self.settings = settings
        self._group = group
        self._guard = settings.guard
        self._embedding = embedding
        self._embedder = embedder
        self.model = model
        self._stream = f"{VECTORS_PREFIX}:{quote(group, safe='')}"
        self._seen = "0-0"
        self._task: asyncio.Task[None] | None = None
        self.index = Index(embedding.most)

    def start(self, store: Store, form: Format) -> None:
        """Begin to follow the stream; Redis need not be there."""
        if self._task is None:
            self._task = asyncio.create_task(self._follow(store, form), name=f"cache vectors {self._group}")

    def same_as(self, other: Nearest) -> bool:
        """Return whether another one would ask the same server for the same."""
        return self.settings == other.settings and self._embedder.place == other._embedder.place

    def close(self) -> None:
        """Follow no longer, and close the kept connections."""
        if self._task is not None:
            self._task.cancel()
        self._embedder.close()

    async def stop(self) -> None:
        """Close, and return when nothing runs any more."""
        self.close()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def turn(self, path: bytes, raw: bytes, body: Mapping[str, Any], place: Place) -> Turn | None:
        """Return the request's last turn; None where only the exact text will do."""
        text = last_turn(raw, body)
        if text is None:
            return None
        kept, words = _guarded(text, self._guard)
        if kept is None:
            return None
        question = {**without_turn(body), "\0kept": kept, "\0by": [self._guard, self.model]}
        key = request_key(path, b"", question, place)
        return None if key is None else Turn(place.group, key.digest, words, text)

    async def find(self, turn: Turn, own: Key, least: float) -> tuple[float, str] | None:
        """Return the cosine and the entry's name of the nearest question; None without one, or without a vector."""
        turn.vector = await self._embedder.embed(turn.text)
        if turn.vector is None:
            return None
        now_ms = time.time_ns() // 1_000_000
        found = self.index.nearest(turn.bucket, turn.words, turn.vector, least, now_ms, own.entry)
        return None if found is None else (found[0], found[1].entry)

    def keep(self, turn: Turn, own: Key, ttl_ms: int, store: Store, form: Format) -> None:
        """Tell all workers that this question has an answer under its own key."""
        if turn.vector is None:
            return
        now_ms = time.time_ns() // 1_000_000
        packed = b64encode(struct.pack(f"<{len(turn.vector)}e", *turn.vector)).decode()
        body = orjson.dumps([turn.bucket, own.entry, now_ms + ttl_ms, turn.words, packed])
        self._take(body)
        data = form.encode(Entry(_KIND, "", "", 0, 0, now_ms, body), self._stream)
        if data is not None:
            store.append(self._stream, data, self._embedding.most, ttl_ms)

    def drop(self, turn: Turn, entry: str) -> None:
        """Forget a question whose answer is gone."""
        self.index.drop(turn.bucket, entry)

    def _take(self, body: bytes) -> None:
        bucket, entry, until_ms, words, packed = orjson.loads(body)
        raw = b64decode(packed)
        vector = struct.unpack(f"<{len(raw) // 2}e", raw)
        length = math.sqrt(sum(x * x for x in vector))
        if length > 0:
            self.index.add(bucket, Candidate(entry, tuple(words), tuple(x / length for x in vector), until_ms))

    async def _follow(self, store: Store, form: Format) -> None:
        while True:
            rows = await store.feed(self._stream, self._seen, _BATCH)
            for name, data in rows:
                self._seen = name
                try:
                    self._take(form.decode(data, self._stream).body)
                except (UnreadableEntry, ValueError, TypeError, struct.error):
                    # Of another version or key: nobody's loss but a hit's.
                    continue
            await asyncio.sleep(0 if len(rows) == _BATCH else _POLL_S)


def _guarded(text: str, guard: str) -> tuple[tuple[str, ...] | None, tuple[int, ...]]:
    """Return what must be equal (None: only the exact text will do), and hashes of the words whose order counts."""
    if guard == "strict":
        return core(text), ()
    found = content(text)
    return (None, ()) if found is None else (found.kept, tuple(_hash(word) for word in found.words))


def _hash(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=6).digest(), "big")


def build_nearest(runtime: Runtime, env: Mapping[str, str], log: logging.Logger) -> dict[str, Nearest]:
    """Return the vectors of each group that is configured to have some. Raises CacheSetupError."""
    found: dict[str, Nearest] = {}
    for name, group in runtime.config.groups.items():
        semantic = group.cache.semantic
        settings = semantic.embedding
        if not semantic.enabled or settings is None:
            continue
        key = env.get(settings.key_env) if settings.key_env else None
        urls: tuple[str, ...] = (settings.url,) if settings.url is not None else ()
        model = settings.model or ""
        if settings.group is not None:
            variants = runtime.groups().get(settings.group)
            if not variants:
                raise CacheSetupError(f"groups.{name}.cache.semantic.embedding.group: no group {settings.group!r}")
            urls, model = variants[0].urls, settings.model or variants[0].served_model
            key = key or variants[0].api_key(env)
        embedder = Embedder(f"{model} at {urls[0]}", urls, model, key, settings.timeout_ms / 1000, log)
        found[name] = Nearest(name, semantic, settings, embedder, model)
    return found

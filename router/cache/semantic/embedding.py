"""A server's vectors of texts (OpenAI's `/v1/embeddings`), asked within a bound; a failing one is left alone."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections.abc import Sequence

import orjson

from backends.wire import Limits, Pool, UpstreamError
from router.config.variant import base_url

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 5.0
MOST_DIMENSIONS = 8192
_MOST_BYTES = 1024 * 1024


class Embedder:
    """One model of vectors behind one or more servers, asked in turn. `name` is for the log."""

    def __init__(
        self, name: str, urls: Sequence[str], model: str, key: str | None, timeout_s: float, log: logging.Logger
    ) -> None:
        self.place = (tuple(urls), model, key)
        """Which servers, which model, with which key."""
        self._name = name
        self._model = model
        self._pools = [Pool(base_url(url)) for url in urls]
        self._next = itertools.cycle(self._pools)
        self._headers = [(b"content-type", b"application/json")]
        if key:
            self._headers.append((b"authorization", b"Bearer " + key.encode()))
        self._timeout_s = timeout_s
        self._limits = Limits(timeout_s, timeout_s, timeout_s, timeout_s)
        self._log = log
        self._pause_s = 0.0
        self._retry_at = 0.0
        self.failures = 0

    async def embed(self, text: str) -> tuple[float, ...] | None:
        """Return the text's vector of length 1; None where the server fails, is late, or failed a moment ago."""
        now = time.monotonic()
        if self._pause_s:
            if now < self._retry_at:
                return None
            # One tries, the others go on without.
            self._retry_at = now + self._timeout_s + self._pause_s
        try:
            async with asyncio.timeout(self._timeout_s):
                vector = await self._ask(text)
        except (UpstreamError, OSError, ValueError, TypeError, KeyError, IndexError) as error:
            self._failed(f"no answer in {self._timeout_s:g} s" if isinstance(error, TimeoutError) else str(error))
            return None
        if self._pause_s:
            self._pause_s = 0.0
            self._log.info("cache: vectors of %s are back", self._name)
        return vector

    def _failed(self, why: str) -> None:
        self.failures += 1
        if not self._pause_s:
            self._log.warning("cache: no vectors of %s (%s); other wordings miss", self._name, why)
        self._pause_s = min(max(FIRST_PAUSE_S, self._pause_s * 2), LONGEST_PAUSE_S)
        self._retry_at = time.monotonic() + self._pause_s

    async def _ask(self, text: str) -> tuple[float, ...]:
        pool = next(self._next)
        raw = orjson.dumps({"model": self._model, "input": text, "encoding_format": "float"})
        connection = await pool.request(b"POST", b"/v1/embeddings", self._headers, raw, self._limits)
        try:
            body = await connection.read_all(_MOST_BYTES)
        finally:
            pool.release(connection)
        if connection.status != 200:
            raise ValueError(f"HTTP {connection.status}")
        found = orjson.loads(body)["data"][0]["embedding"]
        vector = tuple(float(x) for x in found[: MOST_DIMENSIONS + 1])
        length = math.sqrt(sum(x * x for x in vector))
        if len(vector) > MOST_DIMENSIONS or not (0 < length < math.inf):
            raise ValueError("no vector")
        return tuple(x / length for x in vector)

    def close(self) -> None:
        """Close the kept connections."""
        for pool in self._pools:
            pool.close()

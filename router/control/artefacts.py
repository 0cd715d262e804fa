"""Classifiers of single groups: artefacts in Redis under their hash, and a copy beside the control document's own.

The document names an artefact by its SHA-256. What was put in is checked as a file would be, and is plain JSON without code.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from classifier.artefact import ArtefactError, parse
from classifier.scoring import Trained

LARGEST = 8 * 2**20
"""Bytes of an artefact that is put into Redis."""
KEPT = 50
"""Artefacts that Redis keeps: the newest, and those that were asked for last."""
_KEY = "bitgear:classifier"
_DIGEST = re.compile("[0-9a-f]{64}")


class Artefacts:
    """Puts and gets classifiers. `client` None: there is no Redis; `folder` None: no copies are kept."""

    def __init__(self, client: Redis | None, folder: Path | None = None, *, timeout_s: float = 2.0) -> None:
        self._client = client
        self._folder = folder
        self._timeout_s = timeout_s
        self._known: dict[str, Trained] = {}

    async def put(self, data: bytes, used: Collection[str] = (), *, keep: bool = True) -> tuple[str, Trained]:
        """Keep an artefact; return its SHA-256 and the classifier that it is.

        `used`: those that serve now, which no newer one pushes out. Not to `keep` it: only this process knows it, as one
        of the last few, for a look at what it would do. Raises ArtefactError for one that would not load; RedisError, OSError or TimeoutError while Redis is away.
        """
        if len(data) > LARGEST:
            raise ArtefactError(f"the artefact is larger than {LARGEST >> 20} MiB")
        found = await asyncio.to_thread(_made, data, "the artefact")
        digest = str(found.artefact.content["sha256"])
        if self._client is None:
            raise ArtefactError("there is no Redis to keep it in")
        if keep:
            async with asyncio.timeout(self._timeout_s):
                await self._client.set(f"{_KEY}:{digest}", data)
                await self._keep(digest, *used)
            await asyncio.to_thread(self._write, digest, data, used)
        self._remember(digest, found)
        return digest, found

    async def get(self, digest: str) -> Trained:
        """Return the classifier with this SHA-256. Raises ArtefactError where there is none, or it is damaged."""
        known = self._known.get(digest)
        if known is not None:
            return known
        if not _DIGEST.fullmatch(digest):
            raise ArtefactError(f"{digest[:80]!r} is not a SHA-256")
        data, why = await self._fetch(digest)
        if data is None:
            data = await asyncio.to_thread(self._copy, digest)
        if data is None:
            raise ArtefactError(f"the artefact {digest[:12]} is not in Redis{why}")
        found = await asyncio.to_thread(_made, data, f"the artefact {digest[:12]}")
        if found.artefact.content["sha256"] != digest:
            raise ArtefactError(f"the artefact under {digest[:12]} is another one")
        await asyncio.to_thread(self._write, digest, data)
        self._remember(digest, found)
        return found

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                async with asyncio.timeout(self._timeout_s):
                    await self._client.aclose(close_connection_pool=True)

    async def _fetch(self, digest: str) -> tuple[bytes | None, str]:
        if self._client is None:
            return None, ""
        try:
            async with asyncio.timeout(self._timeout_s):
                data: Any = await self._client.get(f"{_KEY}:{digest}")
                if data is not None:
                    await self._keep(digest)
        except (RedisError, OSError, TimeoutError) as error:
            return None, f", which is away ({type(error).__name__})"
        return (data.encode() if isinstance(data, str) else data), ""

    async def _keep(self, *digests: str) -> None:
        """Note that these are wanted, and let go of those that nobody wanted for the longest time."""
        assert self._client is not None
        await self._client.zadd(f"{_KEY}s", dict.fromkeys(digests, time.time()))
        for old in await self._client.zrange(f"{_KEY}s", 0, -KEPT - 1):
            name = old.decode() if isinstance(old, bytes) else str(old)
            await self._client.delete(f"{_KEY}:{name}")
            await self._client.zrem(f"{_KEY}s", name)

    def _remember(self, digest: str, found: Trained) -> None:
        self._known[digest] = found
        while len(self._known) > KEPT:
            del self._known[next(iter(self._known))]

    def _copy(self, digest: str) -> bytes | None:
        try:
            return (self._folder / f"{digest}.json").read_bytes() if self._folder is not None else None
        except OSError:
            return None

    def _write(self, digest: str, data: bytes, used: Collection[str] = ()) -> None:
        if self._folder is None:
            return
        for one in (digest, *used):
            with contextlib.suppress(OSError):
                os.utime(self._folder / f"{one}.json")
        path = self._folder / f"{digest}.json"
        if path.exists():
            return
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = path.with_name(f".{digest}.{os.getpid()}")
            temporary.write_bytes(data)
            temporary.replace(path)
            for old in sorted(self._folder.glob("*.json"), key=lambda p: p.stat().st_mtime)[:-KEPT]:
                # A file system's clock may not tell which of two is newer.
                if old.stem not in {digest, *used}:
                    old.unlink(missing_ok=True)
        except OSError:
            # The copy is for a start without Redis; whoever serves has it already.
            return


def _made(data: bytes, where: str) -> Trained:
    return Trained(parse(data, where))


__all__ = ["KEPT", "LARGEST", "Artefacts"]

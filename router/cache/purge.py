"""Taking entries out: by group, tenant, key and age, over a connection of its own, so that requests do not wait."""

from __future__ import annotations

import re
import time
from typing import Any, NamedTuple
from urllib.parse import quote

from router.cache.address import Address
from router.cache.entry import HEAD, MAGIC
from router.cache.key import PREFIX, VECTORS_PREFIX
from router.cache.link import Link, connect

_TIMEOUT_S = 5.0
_BATCH = 1000
_ANY = PREFIX.replace(":c1", ":[cs]1")
"""Entries, and what remembers wordings."""
_NAME = re.compile(r"[A-Za-z0-9_=-]{1,64}")


class Selection(NamedTuple):
    """Which entries; what is None does not matter."""

    group: str | None = None
    tenant: str | None = None
    key: str | None = None
    """Digest of a request, as its event names it."""
    older_than_s: float | None = None

    def pattern(self) -> str:
        """Return the names of these entries as Redis's pattern. Raises ValueError for what is no tenant or key."""
        for what, value in (("tenant", self.tenant), ("key", self.key)):
            if value is not None and not _NAME.fullmatch(value):
                raise ValueError(f"{what}: {value[:64]!r} is none")
        group = "*" if self.group is None else quote(self.group, safe="")
        return f"{_ANY}:{group}:{self.tenant or '*'}:{{{self.key or '*'}}}"


async def purge(address: Address, selection: Selection) -> int:
    """Take the entries out; their number comes back. Raises OSError, TimeoutError, Refusal, ValueError."""
    pattern = selection.pattern()
    vectors = f"{VECTORS_PREFIX}:{'*' if selection.group is None else quote(selection.group, safe='')}"
    link = await connect(address, _TIMEOUT_S, lambda why, hung: None)
    try:
        cursor, taken = b"0", 0
        while True:
            cursor, names = await link.call("SCAN", cursor, "MATCH", pattern, "COUNT", _BATCH)
            if names and selection.older_than_s is not None:
                names = await _older(link, names, selection.older_than_s)
            if names:
                # One by one: in a cluster they have different slots.
                for future in [link.call("UNLINK", name) for name in names]:
                    taken += await future
            if cursor == b"0":
                break
        # Whose a vector is cannot be asked of Redis: a group's go all, and come again with the next questions.
        cursor = b"0" if selection.key is None else b""
        while cursor:
            cursor, names = await link.call("SCAN", cursor, "MATCH", vectors, "COUNT", _BATCH)
            for future in [link.call("UNLINK", name) for name in names]:
                await future
            if cursor == b"0":
                break
        return taken
    finally:
        link.end("done", False)


async def _older(link: Link, names: list[bytes], seconds: float) -> list[bytes]:
    before_ms = time.time_ns() // 1_000_000 - round(seconds * 1000)
    heads = [link.call("GETRANGE", name, 0, HEAD.size - 1) for name in names]
    found: list[bytes] = []
    for name, future in zip(names, heads, strict=True):
        head: Any = await future
        # What cannot be read is as old as can be.
        if len(head) < HEAD.size or head[:2] != MAGIC or HEAD.unpack(head)[3] <= before_ms:
            found.append(name)
    return found

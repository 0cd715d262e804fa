"""The control document in Redis: its current version, older ones, and who changed what.

Four keys of one slot: a hash with the current version, a hash of older ones by number, a stream of audit entries, and
a channel that tells of each change. A change is one script: it is made whole, on the version that it was meant for,
or not at all.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import orjson
from pydantic import ValidationError
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from router.control.document import ControlDocument
from router.control.merge import Change, changes
from router.keys.record import KeyRecord
from router.store.client import open_client

FORMAT = 1
"""Newest format of a document that this code reads."""
LONGEST = 4 * 1024 * 1024
"""Bytes of JSON of one document."""
_HIDDEN = "***"
_SILENCE_S = 60.0

_PUBLISH = """
local now = tonumber(redis.call('HGET', KEYS[1], 'version') or '0')
if now ~= tonumber(ARGV[1]) then return now end
local version = now + 1
redis.call('HSET', KEYS[1], 'version', version, 'document', ARGV[2], 'at', ARGV[6])
redis.call('HSET', KEYS[2], version, ARGV[2])
redis.call('HDEL', KEYS[2], version - tonumber(ARGV[3]))
redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[5], '*', 'entry', ARGV[4])
redis.call('PUBLISH', KEYS[1], version)
return -1
"""
_RESTORE = """
local now = tonumber(redis.call('HGET', KEYS[1], 'version') or '0')
if now >= tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'version', ARGV[1], 'document', ARGV[2], 'at', ARGV[3])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('PUBLISH', KEYS[1], ARGV[1])
return 1
"""


class Conflict(Exception):  # noqa: N818
    """Somebody else was faster: the current version is `version`, not the one that the change was made from."""

    def __init__(self, version: int, expected: int) -> None:
        super().__init__(f"the current version is {version}, not {expected}")
        self.version = version


class UnreadableDocument(Exception):  # noqa: N818
    """A document of a newer format, or one that is none. `keys`: what of its API keys can be read; None: it has none."""

    def __init__(self, message: str, keys: dict[str, KeyRecord] | None = None) -> None:
        super().__init__(message)
        self.keys = keys


class AuditEntry(NamedTuple):
    """Who did what."""

    id: str
    """Of the stream entry: milliseconds of Unix time, a dash, a number."""
    at: float
    """Unix time, seconds."""
    by: str
    action: str
    """`change` for a new version, else what was done."""
    reason: str
    version: int | None
    """The version that came of it."""
    changes: tuple[Change, ...]


class ControlStore:
    """The document as Redis keeps it. Every method raises RedisError or OSError while Redis is away.

    `history` older versions and about `audit` audit entries are kept.
    """

    def __init__(self, client: Redis, *, key: str = "bitgear:control", history: int = 200, audit: int = 5000) -> None:
        self._client = client
        self._history = history
        self._audit = audit
        self.channel = key
        self._keys = (key, f"{{{key}}}:history", f"{{{key}}}:audit")

    async def latest(self) -> int:
        """Return the current version's number; 0 where nothing was ever changed."""
        return (await self.mark())[0]

    async def mark(self) -> tuple[int, str]:
        """Return the current version's number, and its time: two documents of one number differ in it."""
        version, at = await self._call("HMGET", self._keys[0], "version", "at")
        return int(version or 0), at.decode() if at is not None else ""

    async def current(self) -> ControlDocument:
        """Return the current document; version 0 where nothing was ever changed. Raises UnreadableDocument."""
        return parse(await self._call("HGET", self._keys[0], "document"))

    async def version(self, number: int) -> ControlDocument | None:
        """Return one version, None where it is not kept. Raises UnreadableDocument."""
        if number == 0:
            return ControlDocument()
        data = await self._call("HGET", self._keys[1], str(number))
        return parse(data) if data is not None else None

    async def history(self, limit: int = 50) -> list[ControlDocument]:
        """Return the newest `limit` versions, newest first; those that cannot be read are left out."""
        newest = await self.latest()
        wanted = [str(n) for n in range(newest, max(0, newest - limit), -1)]
        rows = await self._call("HMGET", self._keys[1], *wanted) if wanted else []
        found = []
        for data in rows:
            try:
                found.extend([parse(data)] if data is not None else [])
            except UnreadableDocument:
                continue
        return found

    async def publish(self, document: ControlDocument, *, expected: int) -> ControlDocument:
        """Make `document` the version after `expected` and tell all workers; it comes back with its number and time.

        Raises Conflict where the current version is another one, and changes nothing then; ValueError over 4 MiB.
        """
        before = await self.version(expected)
        now = time.time()
        made = document.model_copy(update={"format": FORMAT, "version": expected + 1, "base": expected, "at": now})
        data = dump(made)
        if len(data) > LONGEST:
            raise ValueError(f"the document takes {len(data)} bytes, more than {LONGEST}")
        told = list(changes(content(before or ControlDocument()), content(made)))
        entry = _entry(now, made.by, "change", made.reason, made.version, told)
        answer = await self._call(
            *("EVAL", _PUBLISH, len(self._keys), *self._keys),
            *(expected, data, self._history, entry, self._audit, stamp(made)),
        )
        if answer != -1:
            raise Conflict(int(answer), expected)
        return made

    async def restore(self, document: ControlDocument) -> bool:
        """Give Redis back what it lost: `document` as it is, over none or an older one. False: there is none older."""
        told = (document.version, dump(document), stamp(document))
        return bool(await self._call("EVAL", _RESTORE, 2, *self._keys[:2], *told))

    async def note(self, by: str, action: str, reason: str = "") -> None:
        """Write down something that was done and makes no version."""
        entry = _entry(time.time(), by, action, reason, None, [])
        await self._call("XADD", self._keys[2], "MAXLEN", "~", self._audit, "*", "entry", entry)

    async def audit(self, limit: int = 50) -> list[AuditEntry]:
        """Return the newest `limit` audit entries, newest first."""
        rows = await self._call("XREVRANGE", self._keys[2], "+", "-", "COUNT", limit)
        found = []
        for identity, fields in rows:
            entry = orjson.loads(fields[b"entry"] if isinstance(fields, dict) else fields[1])
            told = tuple(Change(*row) for row in entry.pop("changes"))
            found.append(AuditEntry(id=identity.decode(), changes=told, **entry))
        return found

    async def listen(self) -> AsyncIterator[int]:
        """Yield the number of each new version as it is published; on a connection of its own, until it breaks."""
        async with self._client.pubsub() as channel:
            await channel.subscribe(self.channel)
            while True:
                message = await channel.get_message(ignore_subscribe_messages=True, timeout=_SILENCE_S)
                if message is not None:
                    yield int(message["data"])

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose(close_connection_pool=True)

    async def _call(self, *command: Any) -> Any:
        return await self._client.execute_command(*command)  # type: ignore[no-untyped-call]


def open_store(url: str, *, password: str | None, timeout_s: float, key: str = "bitgear:control") -> ControlStore:
    """Return the store at a redis://, rediss:// or unix:// URL; nothing is connected yet."""
    client = open_client(url, password=password, timeout_s=timeout_s, retry=Retry(NoBackoff(), 0))
    return ControlStore(client, key=key)


def dump(document: ControlDocument) -> bytes:
    """Return a document's JSON; `parse` gives back an equal one."""
    return orjson.dumps(document.model_dump(mode="json"))


def parse(data: bytes | str | None) -> ControlDocument:
    """Return the document in `data`; None is version 0. Raises UnreadableDocument."""
    if data is None:
        return ControlDocument()
    try:
        found = orjson.loads(data)
        if isinstance(found, dict) and isinstance(found.get("format"), int) and found["format"] > FORMAT:
            raise UnreadableDocument(
                f"version {found.get('version')} has format {found['format']}; this Bitgear reads up to {FORMAT}",
                _keys(found),
            )
        return ControlDocument.model_validate(found)
    except ValidationError as error:
        where = ", ".join(".".join(map(str, e["loc"])) for e in error.errors(include_input=False)) or "the document"
        raise UnreadableDocument(f"not a control document: {where}", _keys(found)) from None
    except orjson.JSONDecodeError as error:
        raise UnreadableDocument(f"not JSON: {error}") from None


def _keys(found: Any) -> dict[str, KeyRecord] | None:
    """Return the API keys of a document that is not understood whole; fields that are not known are left out."""
    told = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(told, dict):
        return None
    keys = {}
    for name, record in told.items():
        known = {k: v for k, v in record.items() if k in KeyRecord.model_fields} if isinstance(record, dict) else {}
        with contextlib.suppress(ValidationError):
            keys[name] = KeyRecord.model_validate(known)
    return keys


def stamp(document: ControlDocument) -> str:
    """Return what `ControlStore.mark` tells of a document beside its number."""
    return repr(document.at)


def content(document: ControlDocument) -> dict[str, Any]:
    """Return what a version says, without its number, time and author."""
    told = document.model_dump(mode="json", include={"config", "groups", "drained", "keys"}, exclude_defaults=True)
    return {"config": {}, "groups": {}, "drained": {}, "keys": {}, **told}


def _entry(at: float, by: str, action: str, reason: str, version: int | None, told: list[Change]) -> bytes:
    rows = [(c.path, _masked(c.before), _masked(c.after)) for c in told]
    entry = {"at": at, "by": by, "action": action, "reason": reason, "version": version, "changes": rows}
    return orjson.dumps(entry)


def _masked(value: Any) -> Any:
    # A key's digest is no secret, but nobody needs it in a log.
    if isinstance(value, dict):
        return {k: _HIDDEN if k == "sha256" else _masked(v) for k, v in value.items()}
    return value


__all__ = [
    "AuditEntry",
    "Conflict",
    "ControlStore",
    "UnreadableDocument",
    "content",
    "dump",
    "open_store",
    "parse",
    "stamp",
]

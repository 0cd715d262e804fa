"""Where recorded events come from: a file of JSON lines, or the stream in Redis."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

_PAGE = 500


class SourceError(ValueError):
    """Events that cannot be read; the message says where and why."""


def from_file(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a file, one JSON object a line, gzipped where its name ends in `.gz`. Raises SourceError."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _event(line, f"{path}:{number}")
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from None


def from_stream(
    url: str, stream: str, *, password: str | None = None, since: float | None = None, timeout_s: float = 5.0
) -> Iterator[dict[str, Any]]:
    """Yield the events of a Redis stream, oldest first, those since a Unix time. Raises SourceError.

    Ends with what the stream holds when it is read: entries that come meanwhile may or may not be in.
    """
    from redis.exceptions import RedisError

    from router.config.problems import masked
    from router.store.client import open_blocking

    try:
        client = open_blocking(url, password=password, timeout_s=timeout_s)
        with client:
            start = "-" if since is None else str(int(since * 1000))
            newest: Any = client.xrevrange(stream, count=1)
            while newest:
                page: Any = client.xrange(stream, min=start, max=newest[0][0].decode(), count=_PAGE)
                for key, fields in page:
                    yield _event(fields.get(b"event", b""), f"entry {key.decode()}")
                if len(page) < _PAGE:
                    return
                start = f"({page[-1][0].decode()}"
    except (RedisError, OSError, ValueError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"{masked(url)}: {masked(str(error))}") from None


def newest(
    url: str, stream: str, most: int, *, password: str | None = None, since: float = 0.0, timeout_s: float = 5.0
) -> list[dict[str, Any]]:
    """Return a stream's newest events, at most `most`, oldest first, those since a Unix time. Raises SourceError."""
    from redis.exceptions import RedisError

    from router.config.problems import masked
    from router.store.client import open_blocking

    try:
        client = open_blocking(url, password=password, timeout_s=timeout_s)
        with client:
            entries: Any = client.xrevrange(stream, min=str(int(since * 1000)), count=most)
    except (RedisError, OSError, ValueError) as error:
        raise SourceError(f"{masked(url)}: {masked(str(error))}") from None
    return [_event(fields.get(b"event", b""), f"entry {key.decode()}") for key, fields in reversed(entries)]


def _event(data: bytes, where: str) -> dict[str, Any]:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise SourceError(f"{where}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise SourceError(f"{where}: expected an object, found {type(value).__name__}")
    return value


def about(
    url: str, stream: str, field: str, request_id: str, *, password: str | None = None, timeout_s: float = 5.0
) -> list[dict[str, Any]]:
    """Return a stream's entries of one request, oldest first; their JSON stands in `field`. Raises SourceError."""
    from redis.exceptions import RedisError

    from router.config.problems import masked
    from router.store.client import open_blocking

    found: list[dict[str, Any]] = []
    # Most entries are of other requests: they need not be parsed.
    wanted, last = orjson.dumps(request_id), "+"
    try:
        with open_blocking(url, password=password, timeout_s=timeout_s) as client:
            while True:
                page: Any = client.xrevrange(stream, max=last, count=_PAGE)
                for key, fields in page:
                    data = fields.get(field.encode(), b"")
                    if wanted in data and (event := _event(data, f"entry {key.decode()}")).get("id") == request_id:
                        found.append(event)
                if len(page) < _PAGE:
                    return found[::-1]
                last = f"({page[-1][0].decode()}"
    except (RedisError, OSError, ValueError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"{masked(url)}: {masked(str(error))}") from None

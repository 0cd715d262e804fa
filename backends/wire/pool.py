"""Kept-alive connections to one replica."""

from __future__ import annotations

import asyncio
import errno
import ssl
from urllib.parse import urlsplit

from backends.wire.connection import Connection, Limits
from backends.wire.errors import UpstreamError

_GRACE_TURNS = 8
"""Turns of the loop between a connection's opening in the kernel and its protocol being told."""
_OWN = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)
"""What this machine lacks when it cannot even begin to connect."""


class Pool:
    """Connections to one base URL; the last one used is taken first, so that idle ones age out.

    `keep_alive_s` stays under uvicorn's own 5 s, so that a connection is hardly ever found closed by the server.
    """

    def __init__(self, base_url: str, *, max_idle: int = 256, keep_alive_s: float = 4.0) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{base_url!r} is not an http:// or https:// URL")
        self.base_url = base_url.rstrip("/")
        self.host = parts.hostname
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.prefix = parts.path.rstrip("/").encode()
        self.host_header = parts.netloc.rpartition("@")[2].encode()
        self._ssl = ssl.create_default_context() if parts.scheme == "https" else None
        self._max_idle = max_idle
        self._keep_alive_s = keep_alive_s
        self._idle: dict[Connection, None] = {}
        self._closed = False

    @property
    def idle(self) -> int:
        """Connections kept for reuse."""
        return len(self._idle)

    def reusable(self) -> Connection | None:
        """Return a kept connection, or None."""
        loop = asyncio.get_running_loop()
        while self._idle:
            connection, _ = self._idle.popitem()
            connection.on_idle_close = None
            if connection.closed:
                continue
            if loop.time() - connection.idle_since > self._keep_alive_s or connection.speaks():
                connection.abort()
                continue
            connection.reused = True
            return connection
        return None

    async def connect(self, timeout_s: float) -> Connection:
        """Open a connection; raise UpstreamError('connect' or 'connect_timeout')."""
        loop = asyncio.get_running_loop()
        opening = asyncio.ensure_future(
            loop.create_connection(lambda: Connection(loop), self.host, self.port, ssl=self._ssl)
        )
        try:
            await asyncio.wait({opening}, timeout=timeout_s)
            # On a busy loop timers are seen before what the sockets have to say: the replica is not blamed for that.
            for _ in range(_GRACE_TURNS):
                if opening.done():
                    break
                await asyncio.sleep(0)
            if not opening.done():
                raise UpstreamError("connect_timeout", f"no connection to {self.base_url} within {timeout_s:g} s")
            return opening.result()[1]
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            own = getattr(error, "errno", None) in _OWN
            raise UpstreamError("connect", f"no connection to {self.base_url}: {why}", own=own) from error
        except asyncio.CancelledError:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                opening.result()[0].close()
            raise
        finally:
            opening.cancel()

    async def request(
        self, method: bytes, path: bytes, headers: list[tuple[bytes, bytes]], body: bytes, limits: Limits
    ) -> Connection:
        """Send a request and return its connection, on which the answer is read; finish with `release`."""
        connection = self.reusable() or await self.connect(limits.connect_s)
        connection.send(self.head(method, path, headers, len(body)) + body, limits)
        return connection

    def head(self, method: bytes, path: bytes, headers: list[tuple[bytes, bytes]], length: int) -> bytes:
        """Return the request's head, with `host` and `content-length`."""
        lines = [b"%b %b%b HTTP/1.1\r\nhost: %b" % (method, self.prefix, path, self.host_header)]
        lines.extend(b"%b: %b" % header for header in headers)
        if length or method not in (b"GET", b"HEAD", b"DELETE"):
            lines.append(b"content-length: %d" % length)
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def release(self, connection: Connection) -> None:
        """Keep a connection whose answer was read to its end; close any other."""
        if (
            connection.done
            and connection.error is None
            and connection.keep_alive
            and not connection.closed
            and not self._closed
            and len(self._idle) < self._max_idle
        ):
            connection.idle_since = asyncio.get_running_loop().time()
            connection.on_idle_close = self._forget
            self._idle[connection] = None
        else:
            connection.abort()

    def _forget(self, connection: Connection) -> None:
        self._idle.pop(connection, None)

    def close(self) -> None:
        """Close the kept connections; those in use end with their requests."""
        self._closed = True
        while self._idle:
            connection, _ = self._idle.popitem()
            connection.on_idle_close = None
            connection.abort()

"""A raw HTTP/1.1 client: gives an answer's exact bytes as they arrived, leaves at any moment, reads as slowly as told."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit


class BadFramingError(Exception):
    """The server broke HTTP: what was expected and what came."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Body bytes that one read gave, framing removed."""

    at: float
    """Seconds, `time.monotonic()`."""
    data: bytes


@dataclass(slots=True)
class Head:
    """Status line and headers."""

    status: int
    headers: list[tuple[str, str]]
    raw: bytes

    def get(self, name: str) -> str | None:
        """The first value of a header, by lower-case name."""
        return next((v for n, v in self.headers if n == name), None)


@dataclass(slots=True)
class Answer:
    """An answer, whole or as far as it came."""

    head: Head
    pieces: list[Piece] = field(default_factory=list)
    complete: bool = False
    """Whether the body ended as its framing says (a connection's end only counts where there is no other framing)."""

    @property
    def status(self) -> int:
        """HTTP status."""
        return self.head.status

    @property
    def body(self) -> bytes:
        """The body's bytes."""
        return b"".join(p.data for p in self.pieces)

    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)

    def events(self) -> list[bytes]:
        """The data of each SSE event, comments left out; for bodies with LF or CRLF line ends."""
        blocks = self.body.replace(b"\r\n", b"\n").split(b"\n\n")
        lines = ([line[5:].strip() for line in b.split(b"\n") if line.startswith(b"data:")] for b in blocks)
        return [b"\n".join(data) for data in lines if data]


class ChunkedDecoder:
    """Strict decoder of the chunked coding; bytes may be cut anywhere."""

    def __init__(self) -> None:
        self.done = False
        self._buffer = b""
        self._left = 0
        """Bytes of data left in this chunk; -2: its CRLF is due."""

    def feed(self, data: bytes) -> bytes:
        """The body bytes in these. Raises BadFramingError."""
        self._buffer += data
        out: list[bytes] = []
        while self._buffer and not self.done:
            if self._left > 0:
                part = self._buffer[: self._left]
                out.append(part)
                self._buffer = self._buffer[len(part) :]
                self._left -= len(part)
                if not self._left:
                    self._left = -2
            elif self._left == -2:
                if len(self._buffer) < 2:
                    break
                if not self._buffer.startswith(b"\r\n"):
                    raise BadFramingError(f"expected CRLF after a chunk, got {self._buffer[:20]!r}")
                self._buffer, self._left = self._buffer[2:], 0
            elif not self._size_line():
                break
        if self.done and self._buffer:
            raise BadFramingError(f"bytes after the last chunk: {self._buffer[:60]!r}")
        return b"".join(out)

    def _size_line(self) -> bool:
        line, found, rest = self._buffer.partition(b"\r\n")
        if not found:
            return False
        size = int(line.split(b";")[0], 16)
        if size:
            self._buffer, self._left = rest, size
            return True
        if not rest.startswith(b"\r\n"):
            if len(rest) < 2:
                return False
            raise BadFramingError(f"expected the end after the last chunk, got {rest[:20]!r}")
        self._buffer, self.done = rest[2:], True
        return True


class RawClient:
    """One connection; use as `async with RawClient(url) as client:`."""

    def __init__(self, url: str, *, receive_buffer: int | None = None) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._receive_buffer = receive_buffer
        self._socket: socket.socket | None = None
        self._early = b""

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def connect(self) -> None:
        """Opens the connection. Raises OSError."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
        self._socket = sock
        await asyncio.get_running_loop().sock_connect(sock, self._address)

    def close(self) -> None:
        """Leaves in order (FIN)."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def reset(self) -> None:
        """Leaves with RST."""
        self._open.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def set_receive_buffer(self, size: int) -> None:
        """Changes how many bytes the kernel keeps for a reader that does not read."""
        self._open.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)

    async def send(self, data: bytes) -> None:
        """Sends these bytes as they are."""
        await asyncio.get_running_loop().sock_sendall(self._open, data)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | dict[str, Any] | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Sends one request; a dict goes as JSON."""
        await self.send(encode_request(method, path, body, headers, f"{self._address[0]}:{self._address[1]}"))

    async def receive(self, size: int = 65536, timeout: float = 60.0) -> bytes:
        """What one read gives; empty at the connection's end. Raises TimeoutError, ConnectionResetError."""
        async with asyncio.timeout(timeout):
            return await asyncio.get_running_loop().sock_recv(self._open, size)

    async def head(self, timeout: float = 60.0) -> Head:
        """Reads status line and headers; body bytes that came with them are kept for `pieces`."""
        data = self._early
        while b"\r\n\r\n" not in data:
            got = await self.receive(timeout=timeout)
            if not got:
                raise BadFramingError(f"the connection ended within the head: {data[:200]!r}")
            data += got
        raw, _, self._early = data.partition(b"\r\n\r\n")
        lines = raw.decode("latin-1").split("\r\n")
        pairs = (line.split(":", 1) for line in lines[1:])
        return Head(int(lines[0].split(" ")[1]), [(n.strip().lower(), v.strip()) for n, v in pairs], raw + b"\r\n\r\n")

    async def pieces(self, answer: Answer, *, size: int = 65536, timeout: float = 60.0) -> AsyncIterator[Piece]:
        """Body pieces as they arrive, also put into `answer`, until the body ends or the connection does."""
        decoder = ChunkedDecoder() if "chunked" in (answer.head.get("transfer-encoding") or "") else None
        length = answer.head.get("content-length")
        left = int(length) if length is not None and decoder is None else None
        if left == 0:
            answer.complete = True
            return
        data, self._early = self._early, b""
        while True:
            if not data:
                data = await self.receive(size, timeout)
                if not data:
                    answer.complete = decoder is None and left is None
                    return
            body = decoder.feed(data) if decoder is not None else data
            data = b""
            if body:
                piece = Piece(time.monotonic(), body)
                answer.pieces.append(piece)
                yield piece
            if left is not None:
                left -= len(body)
                if left < 0:
                    raise BadFramingError(f"{-left} bytes more than content-length says")
            if left == 0 or (decoder is not None and decoder.done):
                answer.complete = True
                return

    async def answer(self, timeout: float = 60.0) -> Answer:
        """Reads a whole answer; `timeout` bounds each read, in seconds."""
        answer = Answer(await self.head(timeout))
        async for _ in self.pieces(answer, timeout=timeout):
            pass
        return answer

    async def read_until(self, found: Callable[[bytes], bool], timeout: float = 60.0) -> Answer:
        """Reads until the body so far satisfies `found`, or ends."""
        answer = Answer(await self.head(timeout))
        async for _ in self.pieces(answer, timeout=timeout):
            if found(answer.body):
                break
        return answer

    @property
    def _open(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionError("not connected")
        return self._socket


def encode_request(
    method: str,
    path: str,
    body: bytes | dict[str, Any] | None,
    headers: Sequence[tuple[str, str]] = (),
    host: str = "127.0.0.1",
) -> bytes:
    """The bytes of one request."""
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
    lines = [f"{method} {path} HTTP/1.1", f"host: {host}", *(f"{n}: {v}" for n, v in headers)]
    names = {n.lower() for n, _ in headers}
    if body is not None and "content-type" not in names:
        lines.append("content-type: application/json")
    if body is not None and not names & {"content-length", "transfer-encoding"}:
        lines.append(f"content-length: {len(raw)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + raw


async def fetch(
    url: str,
    path: str,
    body: bytes | dict[str, Any] | None = None,
    headers: Sequence[tuple[str, str]] = (),
    *,
    method: str | None = None,
    timeout: float = 60.0,
) -> Answer:
    """One request on a connection of its own; POST where there is a body. A URL's password goes as a bearer token."""
    password = urlsplit(url).password
    if password is not None and not any(name.lower() == "authorization" for name, _ in headers):
        headers = [*headers, ("authorization", f"Bearer {password}")]
    async with RawClient(url) as client:
        await client.request(method or ("GET" if body is None else "POST"), path, body, headers)
        return await client.answer(timeout)


def chat(text: str = "Hello", *, model: str = "m", stream: bool = False, **more: Any) -> dict[str, Any]:
    """A chat request's body."""
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": text}]}
    if stream:
        body["stream"] = True
    return {**body, **more}

"""A stand-in for the admin API: keeps what it is asked, gives the answers that a test sets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    body: Any
    authorization: str | None


class FakeAdmin(ThreadingHTTPServer):
    """`answers` by method; what has none gets `answer`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[Asked] = []
        self.answer: Any = {}
        self.answers: dict[str, Any] = {}

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: FakeAdmin

    def _any(self) -> None:
        length = int(self.headers["content-length"] or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.asked.append(Asked(self.command, self.path, body, self.headers["authorization"]))
        data = json.dumps(self.server.answers.get(self.command, self.server.answer)).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def fake_admin() -> Iterator[FakeAdmin]:
    """Serve in a thread."""
    server = FakeAdmin()
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

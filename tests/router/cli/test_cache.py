"""`bitgear cache` against an admin address."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from router.cli.main import app


class _Admin(ThreadingHTTPServer):
    orders: list[Any]


class _Handler(BaseHTTPRequestHandler):
    server: _Admin

    def do_GET(self) -> None:
        self._answer({"state": "up", "writable": True})

    def do_POST(self) -> None:
        self.server.orders.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self._answer({"purged": 3})

    def _answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def admin() -> Iterator[_Admin]:
    server = _Admin(("127.0.0.1", 0), _Handler)
    server.orders = []
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def run(admin: _Admin, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["cache", *arguments, "--url", f"http://127.0.0.1:{admin.server_port}/"])


def test_status(admin: _Admin) -> None:
    assert run(admin, "status").output == "state: up\nwritable: True\n"


def test_purge_says_what_to_take_out(admin: _Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHO", "Bearer sk-bob")
    assert run(admin, "purge", "--group", "g", "--older-than", "60").output == "3 answers taken out\n"
    assert run(admin, "purge", "--tenant", "t", "--key", "k").exit_code == 0
    assert run(admin, "purge", "--credential-env", "WHO").exit_code == 0
    assert run(admin, "purge", "--all").exit_code == 0
    assert admin.orders == [
        {"group": "g", "older_than_s": 60.0, "everything": False},
        {"tenant": "t", "key": "k", "everything": False},
        {"credential": "Bearer sk-bob", "everything": False},
        {"everything": True},
    ]


def test_nothing_is_purged_by_mistake(admin: _Admin) -> None:
    for arguments in (["purge"], ["purge", "--credential-env", "NOT_SET_AT_ALL"]):
        result = run(admin, *arguments)
        assert result.exit_code == 2
        assert "bitgear:" in result.output
    assert admin.orders == []

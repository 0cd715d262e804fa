"""The server itself: keep-alive, pipelining, pieces of a request, limits, and clients that leave."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from backends.simulator import Running
from tests.backends.simulator.conftest import Start
from tests.conftest import until


def raw(
    path: str, body: dict[str, Any] | None = None, *, method: str = "", version: str = "1.1", extra: str = ""
) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    verb = method or ("GET" if body is None else "POST")
    return (
        f"{verb} {path} HTTP/{version}\r\nhost: x\r\n{extra}content-length: {len(content)}\r\n\r\n".encode() + content
    )


async def exchange(running: Running, *parts: bytes, until_seen: bytes) -> bytes:
    """What comes back when `parts` are sent one after the other, up to `until_seen`."""
    host, port = running.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for part in parts:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0)
    got = b""
    async with asyncio.timeout(60):
        while until_seen not in got and (piece := await reader.read(65536)):
            got += piece
    writer.close()
    return got


_CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}


async def test_a_connection_serves_requests_one_after_the_other_even_if_sent_together(simulator: Start) -> None:
    running = await simulator()
    got = await exchange(
        running,
        raw("/v1/chat/completions", {**_CHAT, "stream": True}) + raw("/version") + raw("/nope"),
        until_seen=b'{"detail":"Not Found"}',
    )
    assert got.index(b"[DONE]") < got.index(b'{"version":"0.32.0"}') < got.index(b"Not Found")
    assert got.count(b"HTTP/1.1 200 OK") == 2


async def test_a_request_may_come_byte_by_byte(simulator: Start) -> None:
    running = await simulator()
    whole = raw("/v1/chat/completions", _CHAT)
    got = await exchange(running, *(bytes([byte]) for byte in whole), until_seen=b'"metrics":null}')
    assert b"200 OK" in got


async def test_close_is_honoured_and_old_clients_are_served(simulator: Start) -> None:
    running = await simulator()
    for request in (raw("/version", extra="connection: close\r\n"), raw("/version", version="1.0")):
        got = await exchange(running, request, until_seen=b"never")
        assert b"connection: close" in got
        assert got.endswith(b'{"version":"0.32.0"}')


async def test_a_body_in_chunks_and_100_continue(simulator: Start) -> None:
    running = await simulator()
    content = json.dumps(_CHAT).encode()
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content)
    got = await exchange(running, head, chunks, until_seen=b'"metrics":null}')
    assert got.startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert b"200 OK" in got


async def test_what_is_no_http_gets_400_and_is_closed(simulator: Start) -> None:
    running = await simulator()
    got = await exchange(running, b"nonsense\r\n\r\n", until_seen=b"never")
    assert got.startswith(b"HTTP/1.1 400 Bad Request")
    assert running.simulator.server.connections == set()


async def test_methods(simulator: Start) -> None:
    running = await simulator()
    async with httpx.AsyncClient(base_url=running.url, timeout=60) as client:
        refused = await client.get("/v1/chat/completions")
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
        assert (await client.post("/ping")).status_code == 200
        assert (await client.get("/ping")).status_code == 200


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff", b"[]", b"null", b'{"messages": NaN}', b'{"messages": [{}]}', b"[" * 100_000, b'{"messages": [5]}',
     b'{"messages": [{"role": "user", "content": [{"type": "text"}]}]}', b'{"messages": [{"role": "user", "content": {}}]}',
     b'{"messages": [{"role": "user", "content": "\\ud800"}], "model": "m"}',
     b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
     b'{"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "nope"}}',
     b'{"messages": [{"role": "user", "content": "x"}], "tools": [{"function": {"name": 5}}]}',
     b'{"messages": [{"role": "user", "content": "x"}], "tools": 5, "tool_choice": {"function": 5}}'],
)  # fmt: skip
@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses", "messages", "embeddings"])
async def test_no_body_makes_a_500(simulator: Start, path: str, body: bytes) -> None:
    running = await simulator()
    async with httpx.AsyncClient(base_url=running.url, timeout=60) as client:
        response = await client.post(f"/v1/{path}", content=body)
    assert response.status_code in (200, 400, 404)
    if response.status_code != 200:
        assert response.json()["error"]["message"]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_ends_its_sequences_at_once(simulator: Start, stream: bool) -> None:
    running = await simulator(time_scale=1.0)
    core = running.simulator.core
    body = {**_CHAT, "max_tokens": 5000, "ignore_eos": True, "stream": stream, "n": 3}
    async with httpx.AsyncClient(timeout=60) as client:
        asking = asyncio.create_task(client.post(f"{running.url}/v1/chat/completions", json=body))
        await until(lambda: len(core.engine.running) == 3)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: core.engine.idle and core.in_flight == 0 and not running.simulator.server.connections, 1.0)
    assert core.metrics.finished["abort"] == 3
    assert core.engine.used_blocks == 0


async def test_nothing_is_left_after_many_who_left(simulator: Start) -> None:
    running = await simulator(time_scale=1.0, max_num_seqs=64)
    core = running.simulator.core
    body = {**_CHAT, "max_tokens": 5000, "ignore_eos": True, "stream": True}
    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None), timeout=60) as client:
        for _ in range(5):
            asking = [
                asyncio.create_task(client.post(f"{running.url}/v1/chat/completions", json=body)) for _ in range(40)
            ]
            await until(lambda: len(core.engine.running) == 40)
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            await until(lambda: core.engine.idle and core.in_flight == 0)
    assert core.metrics.finished["abort"] == 200
    assert running.simulator.server.tasks == set()

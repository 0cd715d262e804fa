"""A client's connection: heads too large or never whole, bodies never whole, and health in a full house."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlsplit

import pytest

from router.proxy import listener
from tests.conftest import Bitgear, until
from tests.support.client import RawClient, chat, fetch
from tests.support.upstream import Hang, ScriptedUpstream, Send
from tests.support.wire import ChatWire, json_response, response

Start = Callable[..., Awaitable[Bitgear]]


@pytest.fixture
async def up() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream("g") as server:
        yield server


async def raw(url: str, data: bytes, seconds: float = 10.0) -> bytes:
    """Send bytes, and return all that comes until the server closes."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(data)
        async with asyncio.timeout(seconds):
            return await reader.read()
    finally:
        writer.close()


def error_of(answer: bytes) -> dict[str, str]:
    found: dict[str, str] = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    return found


async def test_a_huge_head_is_refused_before_it_is_whole(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    answer = await raw(gear.url, b"GET /v1/models HTTP/1.1\r\nhost: x\r\nx-long: " + b"a" * 3_000_000)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert error_of(answer)["code"] == "headers_too_large"


async def test_many_small_headers_count_together(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    head = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n" + b"".join(b"x-%d: y\r\n" % i for i in range(100_000))
    assert (await raw(gear.url, head)).startswith(b"HTTP/1.1 431 ")


async def test_what_is_not_http_is_refused_in_openais_format(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    answer = await raw(gear.url, b"\x16\x03\x01 hello\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert error_of(answer)["code"] == "invalid_http"


@pytest.mark.parametrize("sent", [b"", b"GET /v1/mod"])
async def test_a_head_that_never_is_whole_is_given_up(bitgear: Start, up: ScriptedUpstream, sent: bytes) -> None:
    gear = await bitgear({"fp16": up.url}, config={"server": {"head_s": 0.2}})
    assert (await raw(gear.url, sent)).startswith(b"HTTP/1.1 408 ")


async def test_a_body_that_never_is_whole_is_given_up(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url}, config={"timeouts": {"body_s": 0.2}})
    half = b'POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"model"'
    answer = await raw(gear.url, half)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert error_of(answer)["code"] == "request_timeout"


async def test_health_is_told_in_a_full_house(bitgear: Start, up: ScriptedUpstream) -> None:
    up.always([Hang()])
    gear = await bitgear({"fp16": up.url}, config={"server": {"max_concurrent": 1}})
    first = asyncio.create_task(fetch(gear.url, "/v1/chat/completions", chat(model="g")))
    await up.until(lambda: up.running == 1)
    assert (await fetch(gear.url, "/v1/chat/completions", chat(model="g"))).status == 503
    assert (await fetch(gear.url, "/health")).status == 200
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


async def test_a_client_that_leaves_after_a_large_body_is_seen_to_leave(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    up.always([Hang()])
    async with RawClient(gear.url) as client:
        # Above the size at which the server stops reading until the body is taken.
        await client.request("POST", "/v1/chat/completions", chat("x" * 1_000_000, model="g"))
        exchange = await up.exchange()
        client.close()
        await asyncio.wait_for(exchange.closed.wait(), 60)


async def test_who_asks_after_the_end_is_told_soon_and_who_asks_no_more_is_not(
    bitgear: Start, up: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[listener.Listener] = []
    made = listener.Listener.connection_made

    def note(self: listener.Listener, transport: asyncio.Transport) -> None:
        seen.append(self)
        made(self, transport)

    monkeypatch.setattr(listener.Listener, "connection_made", note)
    gear = await bitgear({"fp16": up.url})
    told: list[str] = []

    def one() -> None:
        told.append("one")

    def two() -> None:
        told.append("two")

    def three() -> None:
        told.append("three")

    async with RawClient(gear.url) as client:
        await client.request("GET", "/health")
        await client.answer()
        (connection,) = seen
        connection.watch(one)
        connection.watch(two)
        connection.unwatch(two)
    await until(lambda: bool(told))
    connection.watch(three)
    assert told == ["one"]
    await asyncio.sleep(0)
    await until(lambda: len(told) == 2)
    assert told == ["one", "three"]


async def test_an_answers_head_comes_in_one_piece_with_what_follows(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    parts = urlsplit(gear.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
    first = await reader.read(65536)
    assert first.startswith(b"HTTP/1.1 200 ")
    assert first.partition(b"\r\n\r\n")[2].startswith(b'{"object":"list"')
    # HEAD has nothing that follows, and an expected 100 comes before the body was sent.
    writer.write(b"HEAD /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
    assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).startswith(b"HTTP/1.1 200 ")
    body = json.dumps(chat(model="g")).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n"
    writer.write(head % len(body))
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(body)
    assert (await asyncio.wait_for(reader.read(65536), 60)).startswith(b"HTTP/1.1 200 ")
    writer.close()


CHUNKED = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n"


async def test_what_stands_in_trailers_is_no_header(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    parts = urlsplit(gear.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    body = json.dumps(chat(model="g")).encode()
    writer.write(CHUNKED + b"\r\n%x\r\n%b\r\n" % (len(body), body))
    # The head has been taken then; had it come with the head, this would be refused.
    await until(lambda: gear.worker.app.inflight == 1)
    writer.write(b"0\r\nx-bitgear-precision: none-such\r\nlast: 1\r\n\r\n")
    async with asyncio.timeout(60):
        answer = await reader.readuntil(b"\r\n")
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("answered", [False, True])
async def test_endless_trailers_are_cut_off_before_they_hold_the_loop(
    bitgear: Start, up: ScriptedUpstream, answered: bool
) -> None:
    gear = await bitgear({"fp16": up.url})
    parts = urlsplit(gear.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    # What has its answer before its body is read goes on being read.
    body = b"" if answered else b"2\r\n{}\r\n"
    path = b"/none-such" if answered else b"/v1/chat/completions"
    writer.write(CHUNKED.replace(b"/v1/chat/completions", path) + b"\r\n" + body + b"0\r\nx-long: ")
    if answered:
        assert (await asyncio.wait_for(reader.readuntil(b"}}"), 60)).startswith(b"HTTP/1.1 404 ")
    sent, ended = 0, asyncio.create_task(reader.read())
    with contextlib.suppress(OSError):
        async with asyncio.timeout(60):
            while sent < 400 * 65536 and not ended.done():
                writer.write(b"a" * 65536)
                sent += 65536
                await writer.drain()
                await asyncio.sleep(0.001)
    writer.close()
    with contextlib.suppress(OSError):
        assert (await ended).startswith(b"" if answered else b"HTTP/1.1 431 ")
    assert sent < 400 * 65536


async def test_a_length_written_with_thousands_of_zeros_is_that_length(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    body = json.dumps(chat(model="g")).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: "
    answer = await raw(gear.url, head + b"0" * 5000 + b"%d\r\n\r\n" % len(body) + body)
    assert answer.startswith(b"HTTP/1.1 200 ")


OFFERS = {
    "h2c": b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n",
    "websocket": b"connection: keep-alive, upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x\r\n",
}


async def answers(url: str, *pieces: bytes) -> list[bytes]:
    """Send pieces one after the other; return the bodies of all answers, up to that of a last request that closes."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(0.05)
    writer.write(b"GET /v1/models/last HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    async with asyncio.timeout(60):
        got = await reader.read()
    writer.close()
    return got.split(b"HTTP/1.1 ")[1:]


@pytest.mark.parametrize("offer", sorted(OFFERS))
@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("parted", [False, True])
async def test_who_offers_another_protocol_is_served_in_this_one(
    bitgear: Start, up: ScriptedUpstream, offer: str, framing: str, parted: bool
) -> None:
    gear = await bitgear({"fp16": up.url})
    body = json.dumps(chat(model="g")).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + OFFERS[offer]
    if framing == "length":
        head += b"content-length: %d\r\n\r\n" % len(body)
    else:
        head, body = head + b"transfer-encoding: chunked\r\n\r\n", b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    first, last = await answers(gear.url, *([head, body] if parted else [head + body]))
    assert first.startswith(b"200 ")
    assert last.startswith(b"404 ")


@pytest.mark.parametrize("offer", sorted(OFFERS))
async def test_a_body_is_never_taken_for_the_next_request(bitgear: Start, up: ScriptedUpstream, offer: str) -> None:
    gear = await bitgear({"fp16": up.url})
    hidden = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + OFFERS[offer]
    found = await answers(gear.url, head + b"content-length: %d\r\n\r\n" % len(hidden), hidden)
    assert [answer[:3] for answer in found] == [b"400", b"404"]
    assert b"invalid_json" in found[0]
    # One without a body is a request like any other, too.
    found = await answers(gear.url, b"GET /v1/models HTTP/1.1\r\nhost: x\r\n" + OFFERS[offer] + b"\r\n")
    assert [answer[:3] for answer in found] == [b"200", b"404"]


async def closed(client: RawClient) -> bytes:
    """Return what a connection brings until its end."""
    got = b""
    while piece := await client.receive():
        got += piece
    return got


async def test_empty_lines_after_an_answer_keep_no_connection(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url}, config={"server": {"head_s": 0.2}})
    async with RawClient(gear.url) as client:
        await client.request("GET", "/v1/models")
        await client.answer()
        await client.send(b"\r\n")
        assert await closed(client) == b""


@pytest.mark.parametrize(
    ("framing", "piece"), [(b"content-length: 1000", b"a"), (b"transfer-encoding: chunked", b"5;a")]
)
async def test_a_body_that_comes_after_its_answer_has_an_end(
    bitgear: Start, up: ScriptedUpstream, framing: bytes, piece: bytes
) -> None:
    gear = await bitgear({"fp16": up.url}, config={"server": {"head_s": 0.2}})
    async with RawClient(gear.url) as client:
        await client.send(b"POST /none-such HTTP/1.1\r\nhost: x\r\n" + framing + b"\r\n\r\n")
        assert (await client.answer()).status == 404
        await client.send(piece)
        assert await closed(client) == b""


async def test_a_kept_connection_closes_after_the_time_configured(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url}, config={"server": {"keep_alive_s": 1}})
    async with RawClient(gear.url) as client:
        await client.request("GET", "/v1/models")
        await client.answer()
        assert await closed(client) == b""


async def test_what_is_no_http_behind_a_waiting_request_does_not_get_into_a_stream(
    bitgear: Start, up: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": up.url})
    first, *rest = response(ChatWire("g").stream(["one", "two"]))
    up.always([Send(first + rest[0] + rest[1]), Hang()])
    async with RawClient(gear.url) as client:
        await client.request("POST", "/v1/chat/completions", chat(model="g", stream=True))
        await client.read_until(lambda body: b"one" in body)
        await client.send(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\nno http\r\n\r\n")
        assert await closed(client) == b""
    await until(lambda: gear.worker.app.inflight == 0)


NO_HTTP = {
    "a body to be asked for": b"POST /v1/feedback HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n",
    "two requests": b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n" * 2,
}


@pytest.mark.parametrize("case", sorted(NO_HTTP))
async def test_no_http_behind_a_request_is_no_mistake_of_bitgears_own(
    bitgear: Start, up: ScriptedUpstream, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    gear = await bitgear({"fp16": up.url})
    await raw(gear.url, NO_HTTP[case] + b"no http\r\n\r\n")
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []


async def test_who_leaves_with_a_request_waiting_behind_another_is_seen_to_leave(
    bitgear: Start, up: ScriptedUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    gear = await bitgear({"fp16": up.url})
    up.always([Hang()])
    async with RawClient(gear.url) as client:
        await client.request("POST", "/v1/chat/completions", chat(model="g"))
        await client.request("GET", "/v1/models")
        exchange = await up.exchange()
        client.close()
        await asyncio.wait_for(exchange.closed.wait(), 5)
    await until(lambda: gear.worker.app.inflight == 0)
    await asyncio.sleep(0)
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []


async def test_a_client_of_http_1_0_gets_no_chunks(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    wire = ChatWire("g")
    events = wire.stream(["one", "two"])
    for more, sent, expected in (
        ({"stream": True}, b"".join(response(events)), b"".join(events)),
        ({}, json_response(wire.answer()), wire.answer()),
    ):
        up.enqueue([Send(sent)])
        body = json.dumps(chat(model="g", **more)).encode()
        head = b"POST /v1/chat/completions HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(body)
        told, _, got = (await raw(gear.url, head + body)).partition(b"\r\n\r\n")
        assert told.startswith(b"HTTP/1.1 200 ")
        assert b"transfer-encoding" not in told
        assert got == expected

"""Clients that read nothing of their answer, or little at a time: places, buffers and connections are not theirs for ever."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.conftest import SMALL_BUFFER, Bitgear, until
from tests.support.client import Answer, RawClient, chat
from tests.support.upstream import ScriptedUpstream, Send
from tests.support.wire import ChatWire, chunk, response

Start = Callable[..., Awaitable[Bitgear]]
WIRE = ChatWire("g")
PATH = "/v1/chat/completions"
pytestmark = [pytest.mark.timing, pytest.mark.usefixtures("small_buffers")]

FLOOD = chunk(WIRE.content("x" * 60_000))


@pytest.fixture
async def up() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream("g") as server:
        yield server


def connections(gear: Bitgear) -> int:
    return len(gear.worker._servers[0].server_state.connections)


async def test_a_stream_that_nobody_reads_ends_and_frees_its_replica(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url}, config={"server": {"send_s": 0.3}})
    up.always([Send(response([])[0]), *[Send(FLOOD)] * 2000])
    async with RawClient(gear.url, receive_buffer=SMALL_BUFFER) as client:
        await client.request("POST", PATH, chat(model="g", stream=True))
        exchange = await up.exchange()
        await until(lambda: gear.worker.app.inflight == 0 and connections(gear) == 0)
        await asyncio.wait_for(exchange.closed.wait(), 60)


async def test_a_plain_answer_that_nobody_reads_keeps_no_connection(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url}, config={"server": {"send_s": 0.3}})
    body = [b'{"a":"', b"x" * 2_000_000, b'"}']
    up.always([Send(b"".join(response(body, "length", content_type="application/json")))])
    async with RawClient(gear.url, receive_buffer=SMALL_BUFFER) as client:
        await client.request("POST", PATH, chat(model="g"))
        await up.exchange()
        await until(lambda: connections(gear) == 0)


async def test_a_kept_connection_whose_last_answer_was_not_read_closes(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url}, config={"server": {"send_s": 0.3, "keep_alive_s": 1}})
    # More than the kernel takes, less than what counts as too much.
    up.always([Send(b"".join(response([b'"' + b"x" * 40_000 + b'"'], "length", content_type="application/json")))])
    async with RawClient(gear.url, receive_buffer=SMALL_BUFFER) as client:
        await client.request("POST", PATH, chat(model="g"))
        await up.exchange()
        await until(lambda: gear.worker.app.inflight == 0)
        assert connections(gear) == 1
        await until(lambda: connections(gear) == 0)


async def test_requests_whose_answers_nobody_reads_are_not_taken_for_ever(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url}, config={"server": {"send_s": 0.3}})
    async with RawClient(gear.url, receive_buffer=SMALL_BUFFER) as client:
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(10):
                while True:
                    await client.send(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n" * 100)
        await until(lambda: gear.worker.app.inflight == 0 and connections(gear) == 0)


async def test_who_reads_slowly_but_reads_gets_the_whole_answer(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url}, config={"server": {"send_s": 0.5}})
    up.always([Send(b"".join(response([b'"' + b"x" * 2_000_000 + b'"'], "length", content_type="application/json")))])
    async with RawClient(gear.url, receive_buffer=SMALL_BUFFER) as client:
        await client.request("POST", PATH, chat(model="g"))
        answer, pieces = Answer(await client.head()), 0
        client.set_receive_buffer(60_000)
        async for _ in client.pieces(answer, size=60_000):
            pieces += 1
            if pieces <= 20:
                await asyncio.sleep(0.1)
    assert answer.complete
    assert len(answer.body) == 2_000_002

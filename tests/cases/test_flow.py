"""Cases 16 and 17: each event goes on at once, and nobody reads faster than the client."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.cases.helpers import (
    CHAT_PATH,
    SHORT,
    WIRE,
    Start,
    ask,
    rss_mib,
    script,
    settled,
    stream,
)
from tests.support.client import Answer, RawClient, chat
from tests.support.upstream import Hang, ScriptedUpstream, Send, Step, Wait
from tests.support.wire import DONE, chunk, response

# Case 16


async def test_case_16_each_event_reaches_the_client_before_the_next_is_sent(
    bitgear: Start, up: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": up.url})
    events = WIRE.stream([f"t{i}" for i in range(50)])
    gates = [asyncio.Event() for _ in events]
    head, *pieces, end = response(events)
    steps: list[Step] = [Send(head), Send(pieces[0])]
    for gate, piece in zip(gates[1:], pieces[1:], strict=True):
        steps += [Send(piece), Wait(gate)]
    up.always([*steps, Send(end)])
    async with RawClient(gear.url) as client:
        await client.request("POST", CHAT_PATH, ask())
        answer = Answer(await client.head())
        async for _ in client.pieces(answer):
            for gate in gates[: answer.body.count(b"\n\n")]:
                gate.set()
    assert answer.body == b"".join(events)
    assert len(answer.pieces) >= 50


async def test_case_16_first_token_is_not_held_up(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    added: dict[str, list[float]] = {gear.url: [], up.url: []}
    for number in range(80):
        url = (gear.url, up.url)[number % 2]
        go, sent = asyncio.Event(), 0.0
        head, role, first, *rest = response(WIRE.stream(["a", "b"]))
        up.enqueue([Send(head), Wait(go), Send(role), Send(first), Hang()])
        async with RawClient(url) as client:
            await client.request("POST", CHAT_PATH, ask())
            await up.exchange(number)
            sent = time.monotonic()
            go.set()
            answer = Answer(await client.head())
            async for piece in client.pieces(answer):
                added[url].append(piece.at - sent)
                break
        await settled(gear, up)
    # A missing TCP_NODELAY or a timer shows in every one, as 40 ms; a busy machine only in some, a slow one in both.
    assert min(added[gear.url]) < 10 * min(added[up.url])
    assert rest


# Case 17

FLOOD = chunk(WIRE.content("x" * 60_000))


@pytest.mark.timing
async def test_case_17_a_client_that_does_not_read_holds_its_upstream_back(
    bitgear: Start, up: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": up.url})
    up.always([Send(response([])[0]), *[Send(FLOOD)] * 2000])
    before = rss_mib()
    clients = [RawClient(gear.url, receive_buffer=4096) for _ in range(20)]
    try:
        for client in clients:
            await client.connect()
            await client.request("POST", CHAT_PATH, ask())
        await up.until(lambda: len(up.exchanges) == 20)
        sent = -1
        while sent != sum(e.sent for e in up.exchanges):
            sent = sum(e.sent for e in up.exchanges)
            await asyncio.sleep(0.3)
        # Kernel buffers of four sockets a stream hold most of it.
        assert sent / 20 < 12_000_000
        assert rss_mib() - before < 20 * 2 + 20
        up.enqueue(script(response([*SHORT, DONE])))
        began = time.monotonic()
        assert (await stream(gear.url)).body == b"".join([*SHORT, DONE])
        assert time.monotonic() - began < 1
    finally:
        for client in clients:
            client.close()
    await settled(gear, up)


async def test_case_17_a_slow_reader_gets_every_byte(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    events = [WIRE.role(), *(WIRE.content(f"{i} " + "x" * 100_000) for i in range(300)), WIRE.content("", "stop"), DONE]
    up.always(script(response(events)))
    async with RawClient(gear.url, receive_buffer=4096) as client:
        await client.request("POST", CHAT_PATH, ask())
        exchange = await up.exchange()
        answer = Answer(await client.head())
        with pytest.raises(TimeoutError):
            await up.until(exchange.done.is_set, timeout=0.2)
        client.set_receive_buffer(100_000)
        async for _ in client.pieces(answer, size=100_000):
            await asyncio.sleep(0)
    assert answer.complete
    assert answer.body == b"".join(events)


async def test_case_17_a_slow_reader_of_a_large_plain_answer_holds_its_upstream_back(
    bitgear: Start, up: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": up.url})
    body = [b'{"a":"', *[b"x" * 100_000] * 400, b'"}']
    up.always(script(response(body, "length", content_type="application/json")))
    async with RawClient(gear.url, receive_buffer=4096) as client:
        await client.request("POST", CHAT_PATH, chat(model="g"))
        exchange = await up.exchange()
        answer = Answer(await client.head())
        with pytest.raises(TimeoutError):
            await up.until(exchange.done.is_set, timeout=0.3)
        assert exchange.sent < 20_000_000
        client.set_receive_buffer(1_000_000)
        async for _ in client.pieces(answer, size=1_000_000):
            pass
    assert answer.complete
    assert answer.body == b"".join(body)

"""Cases 1 to 4: a client that leaves ends its upstream request at once, whenever and however it leaves."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.cases.helpers import (
    CHAT_PATH,
    TEXT_WIRE,
    WIRE,
    Start,
    ask,
    inflight,
    leave_after,
    open_files,
    settled,
    stream,
)
from tests.support.client import Answer, RawClient, chat, fetch
from tests.support.upstream import Exchange, Hang, ScriptedUpstream, Send, sends
from tests.support.wire import event, response

pytestmark = pytest.mark.timing

AT_ONCE_S = 1.0
HEAD, ROLE, FIRST, *_ = response(WIRE.stream(["Hel", "lo"]))
ENDPOINTS: list[tuple[str, dict[str, Any]]] = [
    (CHAT_PATH, chat(model="g")),
    ("/v1/completions", {"model": "g", "prompt": "Hello"}),
    ("/v1/responses", {"model": "g", "input": "Hello"}),
    ("/v1/messages", {"model": "g", "max_tokens": 50, "messages": [{"role": "user", "content": "Hello"}]}),
    ("/v1/embeddings", {"model": "g", "input": "Hello"}),
    ("/tokenize", {"model": "g", "prompt": "Hello"}),
    ("/v1/audio/speech", {"model": "g@fp16", "input": "Hello"}),
]


async def closed_at_once(exchange: Exchange, since: float) -> None:
    await asyncio.wait_for(exchange.closed.wait(), AT_ONCE_S)
    assert exchange.closed_at is not None
    assert exchange.closed_at - since < AT_ONCE_S


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_case_1_client_leaves_during_a_plain_request(bitgear: Start, up: ScriptedUpstream, how: str) -> None:
    gear = await bitgear({"fp16": up.url})
    up.always([Hang()])
    for number, (path, body) in enumerate(ENDPOINTS):
        async with RawClient(gear.url) as client:
            await client.request("POST", path, body)
            exchange = await up.exchange(number)
            assert exchange.target == path
            assert (up.running, inflight(gear)) == (1, 2)
            left = time.monotonic()
            getattr(client, how)()
            await closed_at_once(exchange, left)
        await settled(gear, up)
    assert len(up.exchanges) == len(ENDPOINTS)


async def test_case_1_client_leaves_in_the_middle_of_a_plain_answer(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    head, body = response([b'{"a":' + b" " * 100_000], "length", content_type="application/json")
    up.always([Send(head), Send(body[:50_000]), Hang()])
    async with RawClient(gear.url) as client:
        await client.request("POST", CHAT_PATH, chat(model="g"))
        exchange = await up.exchange()
        await up.until(lambda: exchange.sent > 50_000)
        left = time.monotonic()
        client.close()
        await closed_at_once(exchange, left)
    await settled(gear, up)


async def test_case_1_client_leaves_while_its_body_is_still_on_its_way(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    async with RawClient(gear.url) as client:
        await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ncontent-length: 1000\r\n\r\n{")
        while inflight(gear) != 1:
            await asyncio.sleep(0.001)
    await settled(gear, up)
    assert up.exchanges == []


async def test_case_1_a_leaving_client_is_not_held_against_the_replica(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url}, config={"breaker": {"failures": 1}})
    (replica,) = gear.worker.fleet.variants()[0].replicas
    up.always([Send(HEAD), Send(ROLE), Send(FIRST), Hang()])
    for _ in range(5):
        async with RawClient(gear.url) as client:
            await client.request("POST", CHAT_PATH, ask())
            await client.head()
        await settled(gear, up)
    assert replica.ready
    assert replica.failures == 0


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize(
    "sent", [[], [HEAD], [HEAD, ROLE], [HEAD, ROLE, FIRST[:30]]], ids=["nothing", "head", "role", "part"]
)
async def test_case_2_client_leaves_before_the_first_token(
    bitgear: Start, up: ScriptedUpstream, sent: list[bytes], how: str
) -> None:
    gear = await bitgear({"fp16": up.url})
    up.always([*sends(sent), Hang()])
    async with RawClient(gear.url) as client:
        await client.request("POST", CHAT_PATH, ask())
        exchange = await up.exchange()
        await up.until(lambda: exchange.sent == sum(map(len, sent)))
        left = time.monotonic()
        getattr(client, how)()
        await closed_at_once(exchange, left)
    await settled(gear, up)
    assert len(up.exchanges) == 1


async def test_case_2_client_leaves_between_two_attempts(
    bitgear: Start, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": [up.url, other.url]})
    failing = [Send(response([b"{}"], "length", 500)[0]), Send(b"{}")]
    for upstream in (up, other):
        upstream.enqueue(failing, [Hang()])
        upstream.always([Hang()])
    async with RawClient(gear.url) as client:
        await client.request("POST", CHAT_PATH, ask())
        while not (up.exchanges and other.exchanges):
            await asyncio.sleep(0.001)
    await settled(gear, up, other)
    assert len(up.exchanges) + len(other.exchanges) <= 3


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_case_3_client_leaves_mid_stream(bitgear: Start, up: ScriptedUpstream, how: str) -> None:
    gear = await bitgear({"fp16": up.url})
    up.always([Send(HEAD), Send(ROLE), Send(FIRST), Hang()])
    async with RawClient(gear.url) as client:
        await client.request("POST", CHAT_PATH, ask())
        answer = Answer(await client.head())
        await leave_after(client, answer, lambda body: b"Hel" in body)
        left = time.monotonic()
        getattr(client, how)()
        await closed_at_once(await up.exchange(), left)
    await settled(gear, up)


async def test_case_3_client_leaves_while_it_does_not_read(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    flood = response([WIRE.content("x" * 60_000)])[1]
    up.always([Send(HEAD), *[Send(flood)] * 500])
    async with RawClient(gear.url, receive_buffer=4096) as client:
        await client.request("POST", CHAT_PATH, ask())
        exchange = await up.exchange()
        await client.head()
        with pytest.raises(TimeoutError):
            await up.until(exchange.done.is_set, timeout=0.3)
        left = time.monotonic()
        client.reset()
        await closed_at_once(exchange, left)
    await settled(gear, up)


async def test_case_3_nothing_leaks_after_1000_clients_left_mid_stream(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    up.always([Send(HEAD), Send(ROLE), Send(FIRST), Hang()])

    async def one(number: int) -> None:
        async with RawClient(gear.url) as client:
            await client.request("POST", CHAT_PATH, ask())
            answer = Answer(await client.head())
            await leave_after(client, answer, lambda body: b"Hel" in body)
            if number % 2:
                client.reset()

    await asyncio.gather(*(one(i) for i in range(20)))
    await settled(gear, up)
    files, tasks = open_files(), len(asyncio.all_tasks())
    for begin in range(0, 1000, 50):
        await asyncio.gather(*(one(begin + i) for i in range(50)))
        await settled(gear, up, timeout=AT_ONCE_S)
    await up.until(lambda: up.open_connections <= 5)
    assert all(e.closed.is_set() for e in up.exchanges)
    assert len(up.exchanges) == 1020
    async with asyncio.timeout(60):
        while open_files() > files + 5 or len(asyncio.all_tasks()) > tasks + 3:
            await asyncio.sleep(0.01)
    up.always(sends(response(WIRE.stream(["ok"]))))
    assert (await stream(gear.url)).events()[-1] == b"[DONE]"


STREAMS: list[tuple[str, dict[str, Any], bytes]] = [
    (CHAT_PATH, ask(), WIRE.content("Hi")),
    ("/v1/completions", {"model": "g", "prompt": "Hello", "stream": True}, TEXT_WIRE.text("Hi")),
    (
        "/v1/responses",
        {"model": "g", "input": "Hello", "stream": True},
        b"event: response.output_text.delta\n" + event('{"type":"response.output_text.delta","delta":"Hi"}'),
    ),
    (
        "/v1/messages",
        {"model": "g", "max_tokens": 50, "messages": [{"role": "user", "content": "Hello"}], "stream": True},
        b"event: content_block_delta\n"
        + event('{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}'),
    ),
    ("/v1/other", {"model": "g@fp16", "stream": True}, WIRE.content("Hi")),
]


@pytest.mark.parametrize(("path", "body", "first"), STREAMS, ids=[p for p, _, _ in STREAMS])
async def test_case_4_no_layer_hides_a_disconnect_on_any_streamed_path(
    bitgear: Start, up: ScriptedUpstream, path: str, body: dict[str, Any], first: bytes
) -> None:
    gear = await bitgear({"fp16": up.url})
    up.always([*sends(response([first])[:2]), Hang()])
    async with RawClient(gear.url) as client:
        await client.request("POST", path, body)
        answer = Answer(await client.head())
        await leave_after(client, answer, lambda got: b"Hi" in got)
        left = time.monotonic()
        client.close()
        await closed_at_once(await up.exchange(), left)
    await settled(gear, up)


async def test_case_4_the_openai_client_closing_its_stream_ends_the_upstream_request(
    bitgear: Start, up: ScriptedUpstream
) -> None:
    import openai

    gear = await bitgear({"fp16": up.url})
    up.always([Send(HEAD), Send(ROLE), Send(FIRST), Hang()])
    async with openai.AsyncOpenAI(base_url=f"{gear.url}/v1", api_key="none", max_retries=0) as client:
        chunks = await client.chat.completions.create(
            model="g", messages=[{"role": "user", "content": "Hello"}], stream=True
        )
        async for part in chunks:
            if part.choices[0].delta.content:
                break
        left = time.monotonic()
        await chunks.close()
        await closed_at_once(await up.exchange(), left)
    await settled(gear, up)


async def test_case_4_a_finished_answer_is_no_disconnect(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    for _ in range(3):
        assert (await fetch(gear.url, CHAT_PATH, chat(model="g"))).status == 200
    await settled(gear, up)
    assert up.accepted <= 3
    assert not any(e.closed.is_set() for e in up.exchanges)

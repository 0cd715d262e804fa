"""What a client is told when Bitgear stops before its answer is whole."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.conftest import Bitgear
from tests.support.client import RawClient, chat
from tests.support.upstream import Hang, ScriptedUpstream, Send
from tests.support.wire import ChatWire, response

Start = Callable[..., Awaitable[Bitgear]]
WIRE = ChatWire("g")
PATH = "/v1/chat/completions"


@pytest.fixture
async def up() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream("g") as server:
        yield server


async def test_a_request_cut_by_the_end_of_the_drain_gets_a_503(bitgear: Start, up: ScriptedUpstream) -> None:
    up.always([Hang()])
    gear = await bitgear({"fp16": up.url}, config={"server": {"drain_s": 1}})
    async with RawClient(gear.url) as client:
        await client.request("POST", PATH, chat(model="g"))
        await up.until(lambda: up.running == 1)
        gear.worker.stop()
        answer = await client.answer()
    assert answer.status == 503
    assert answer.json()["error"]["code"] == "stopping"
    assert answer.head.get("retry-after") == "1"


async def test_a_stream_cut_by_the_end_of_the_drain_ends_with_an_error_event(
    bitgear: Start, up: ScriptedUpstream
) -> None:
    pieces = response(WIRE.stream(["one", "two"]))
    up.always([Send(b"".join(pieces[:3])), Hang()])
    gear = await bitgear({"fp16": up.url}, config={"server": {"drain_s": 1}})
    async with RawClient(gear.url) as client:
        await client.request("POST", PATH, chat(model="g", stream=True))
        answer = await client.read_until(lambda body: b"one" in body)
        gear.worker.stop()
        async for _ in client.pieces(answer):
            pass
    assert answer.complete
    assert b'"code":"stopping"' in answer.body

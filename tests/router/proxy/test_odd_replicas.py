"""Replicas that answer 200 with something that is no answer, and errors before any token: others take over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from tests.conftest import Bitgear
from tests.support.client import RawClient, chat, fetch
from tests.support.upstream import Close, ScriptedUpstream, Send, Step, sends
from tests.support.wire import ChatWire, json_response, response

Start = Callable[..., Awaitable[Bitgear]]
WIRE = ChatWire("g")
PATH = "/v1/chat/completions"
GOOD: list[Step] = [Send(json_response(WIRE.answer()))]
ODD = {
    "a page": b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 13\r\n\r\n<html></html>",
    "a redirect": b"HTTP/1.1 302 Found\r\nlocation: /login\r\ncontent-length: 0\r\n\r\n",
    "nothing": b"HTTP/1.1 204 No Content\r\n\r\n",
    "an empty body": b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 0\r\n\r\n",
    "no type": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
}


@pytest.fixture
async def pair() -> AsyncIterator[tuple[ScriptedUpstream, ScriptedUpstream]]:
    async with AsyncExitStack() as stack:
        bad = await stack.enter_async_context(ScriptedUpstream("g"))
        good = await stack.enter_async_context(ScriptedUpstream("g"))
        good.always(GOOD)
        yield bad, good


@pytest.mark.parametrize("odd", sorted(ODD))
async def test_what_is_no_answer_is_a_failure_that_others_mend(
    bitgear: Start, pair: tuple[ScriptedUpstream, ScriptedUpstream], odd: str
) -> None:
    bad, good = pair
    bad.always([Send(ODD[odd])])
    gear = await bitgear({"fp16": (bad.url, good.url)}, config={"balancer": "round_robin"})
    for _ in range(4):
        answer = await fetch(gear.url, PATH, chat(model="g"))
        assert answer.status == 200
        assert answer.json()["choices"]
    assert bad.exchanges


async def test_alone_such_a_replica_gives_an_error_and_is_taken_out(bitgear: Start) -> None:
    async with ScriptedUpstream("g") as bad:
        bad.always([Send(ODD["a page"])])
        gear = await bitgear({"fp16": bad.url}, config={"breaker": {"failures": 2, "open_s": 60}})
        statuses = [(await fetch(gear.url, PATH, chat(model="g"))).status for _ in range(3)]
        assert statuses == [502, 502, 503]


async def test_an_error_event_before_the_first_token_is_mended_elsewhere(
    bitgear: Start, pair: tuple[ScriptedUpstream, ScriptedUpstream]
) -> None:
    bad, good = pair
    bad.always(sends(response([WIRE.role(), WIRE.error()])))
    good.always(sends(response(WIRE.stream(["fine"]))))
    gear = await bitgear({"fp16": (bad.url, good.url)}, config={"balancer": "round_robin"})
    for _ in range(2):
        answer = await fetch(gear.url, PATH, chat(model="g", stream=True))
        assert b"fine" in answer.body
        assert b'"error"' not in answer.body


async def test_the_media_type_is_read_in_any_case(
    bitgear: Start, pair: tuple[ScriptedUpstream, ScriptedUpstream]
) -> None:
    up, _ = pair
    stream = b"".join(response(WIRE.stream(["hi"], usage=True))).replace(b"text/event-stream", b"Text/Event-Stream")
    up.always([Send(stream)])
    gear = await bitgear({"fp16": up.url})
    answer = await fetch(gear.url, PATH, chat(model="g", stream=True))
    assert b"hi" in answer.body
    assert b'"usage":{' not in answer.body


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
async def test_an_end_mark_without_its_empty_line_ends_the_stream_all_the_same(
    bitgear: Start, pair: tuple[ScriptedUpstream, ScriptedUpstream], end: bytes
) -> None:
    up, _ = pair
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    events = b"".join(WIRE.stream(["fine"])).removesuffix(b"data: [DONE]\n\n")
    up.always([Send(head + events + b"data: [DONE]" + end), Close()])
    gear = await bitgear({"fp16": up.url})
    answer = await fetch(gear.url, PATH, chat(model="g", stream=True))
    assert answer.complete
    assert answer.events()[-1] == b"[DONE]"
    assert b'"error"' not in answer.body


@pytest.mark.parametrize("status", [400, 404, 413])
async def test_a_page_that_refuses_a_request_becomes_an_error_that_libraries_read(
    bitgear: Start, pair: tuple[ScriptedUpstream, ScriptedUpstream], status: int
) -> None:
    up, _ = pair
    page = b"HTTP/1.1 %d No\r\ncontent-type: text/html\r\ncontent-length: 13\r\n\r\n<html></html>" % status
    up.always([Send(page)])
    gear = await bitgear({"fp16": up.url})
    answer = await fetch(gear.url, PATH, chat(model="g"))
    assert answer.status == status
    assert answer.json()["error"]["code"] == "invalid_request"
    # To a path that Bitgear does not know, anything may be an answer.
    other = await fetch(gear.url, "/v1/other?model=g@fp16", b"{}")
    assert (other.status, other.body) == (status, b"<html></html>")


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_that_has_no_body_says_no_length(
    bitgear: Start, pair: tuple[ScriptedUpstream, ScriptedUpstream], status: int
) -> None:
    up, _ = pair
    up.always([Send(b"HTTP/1.1 %d Nothing\r\n\r\n" % status)])
    gear = await bitgear({"fp16": up.url})
    async with RawClient(gear.url) as client:
        await client.request("POST", "/v1/other?model=g@fp16", b"{}")
        head = await client.head()
        assert head.status == status
        assert head.get("content-length") is None
        assert head.get("transfer-encoding") is None
        # The connection is good for another request.
        await client.request("GET", "/v1/models")
        assert (await client.answer()).status == 200

"""Cases 14 and 15: a stream that dies is retried before its first token, and says so after it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import orjson
import pytest

from tests.cases.helpers import (
    CHAT_PATH,
    SHORT,
    UNBREAKABLE,
    WIRE,
    Start,
    ask,
    each,
    in_turn,
    script,
    settled,
    stream,
)
from tests.support.client import Answer, RawClient, chat, fetch
from tests.support.upstream import Close, Reset, ScriptedUpstream, Send, Wait, sends
from tests.support.wire import DONE, error_body, event, json_response, response, split

# Case 14


async def test_case_14_an_error_inside_a_stream_reaches_the_client_and_counts(
    bitgear: Start, up: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": up.url})
    (replica,) = gear.worker.fleet.variants()[0].replicas
    events = [WIRE.role(), WIRE.content("a"), WIRE.error(), DONE]
    body = b"".join(events)
    up.always(script(response(events)))
    for number in range(1, 4):
        answer = await stream(gear.url)
        assert answer.complete
        assert answer.body == body
        assert answer.head.get("x-bitgear-cache") == "bypass"
        await settled(gear, up)
        assert replica.failures == number
        assert len(up.exchanges) == number
    assert replica.breaker.state == "open" or replica.ready


async def test_case_14_an_error_split_at_every_byte_counts_each_time(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url}, config=UNBREAKABLE)
    (replica,) = gear.worker.fleet.variants()[0].replicas
    body = b"".join([WIRE.role(), WIRE.content("a"), WIRE.error(), DONE])
    begin = body.index(WIRE.error())
    steps = [script(response(split(body, [cut]))) for cut in range(begin - 1, begin + len(WIRE.error()) + 2)]
    for answer in await each(gear.url, steps, up):
        assert answer.body == body
    await settled(gear, up)
    assert replica.failures == len(steps)


async def test_case_14_an_error_as_the_first_event_is_never_taken_for_an_answer(
    bitgear: Start, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": [up.url, other.url]}, config=UNBREAKABLE)
    good = script(response([*SHORT, DONE]))
    for events in ([WIRE.error(), DONE], [WIRE.role(), WIRE.error(), DONE]):
        in_turn([script(response(events))], good, up, other)
        answer = await stream(gear.url)
        assert answer.body in (b"".join(events), b"".join([*SHORT, DONE]))
        await settled(gear, up, other)
    assert sum(r.failures for r in gear.worker.fleet.variants()[0].replicas) == 2


async def test_case_14_an_error_that_blames_the_request_is_not_held_against_the_replica(
    bitgear: Start, up: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": up.url})
    events = [WIRE.role(), WIRE.content("a"), event(error_body("bad grammar", code=400)), DONE]
    up.always(script(response(events)))
    assert (await stream(gear.url)).body == b"".join(events)
    await settled(gear, up)
    assert gear.worker.fleet.variants()[0].replicas[0].failures == 0


# Case 15


TINY = [
    event('{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}'),
    event('{"choices":[{"index":0,"delta":{"content":"你"}}]}'),
    event('{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'),
    DONE,
]
"""A stream of which every prefix is tried as the last that came."""


def prefixes() -> Iterator[tuple[bytes, int]]:
    """Every prefix of a chunked answer, with how many whole events it holds."""
    pieces = response(TINY)
    wire, ends = b"".join(pieces), [sum(map(len, pieces[: i + 2])) - 2 for i in range(len(TINY))]
    for cut in range(len(wire)):
        yield wire[:cut], sum(end <= cut for end in ends)


async def test_case_15_a_stream_that_dies_at_any_byte_is_retried_or_ends_in_an_error(
    bitgear: Start, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": [up.url, other.url]}, config=UNBREAKABLE)
    async with RawClient(gear.url) as client:
        for prefix, whole in prefixes():
            seen = in_turn([[Send(prefix), Close()]], script(response(TINY)), up, other)
            await client.request("POST", CHAT_PATH, ask())
            answer = await client.answer()
            assert (answer.status, answer.complete) == (200, True), prefix
            if whole < 2:
                assert answer.body == b"".join(TINY)
                assert len(seen) == 2
            else:
                assert len(seen) == 1
                begun = b"".join(TINY[:whole])
                assert answer.body.startswith(begun)
                (error,) = [orjson.loads(e) for e in answer.events()[whole:]]
                assert error["error"]["message"]


@pytest.mark.parametrize("sent", [0, 1, 2], ids=["nothing", "head", "role"])
async def test_case_15_reset_before_the_first_token_is_retried(
    bitgear: Start, up: ScriptedUpstream, other: ScriptedUpstream, sent: int
) -> None:
    gear = await bitgear({"fp16": [up.url, other.url]})
    wire = response([*SHORT, DONE])
    seen = in_turn([[*sends(wire[:sent]), Reset()]], script(wire), up, other)
    answer = await stream(gear.url)
    assert answer.body == b"".join([*SHORT, DONE])
    assert len(seen) == 2


async def test_case_15_reset_after_the_first_token_is_never_retried(
    bitgear: Start, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": [up.url, other.url]})
    go = asyncio.Event()
    wire = response([*SHORT, DONE])
    seen = in_turn([[*sends(wire[:3]), Wait(go), Reset()]], script(wire), up, other)
    async with RawClient(gear.url) as client:
        await client.request("POST", CHAT_PATH, ask())
        answer = Answer(await client.head())
        async for _ in client.pieces(answer):
            if "你😀".encode() in answer.body:
                go.set()
    assert answer.complete
    assert answer.body.startswith(b"".join(SHORT[:2]))
    assert answer.body.count(b"data: ") == 3
    error = orjson.loads(answer.events()[-1])["error"]
    assert error["message"]
    assert error["code"]
    assert len(seen) == 1


async def test_case_15_a_stream_that_ends_without_its_end_mark_is_not_taken_for_whole(
    bitgear: Start, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": [up.url, other.url]})
    for framing in ("close", "chunked"):
        seen = in_turn([script(response(SHORT[:2], framing), framing)], script(response([*SHORT, DONE])), up, other)
        answer = await stream(gear.url)
        assert len(seen) == 1
        assert answer.body.startswith(b"".join(SHORT[:2]))
        assert "error" in orjson.loads(answer.events()[-1]), framing


async def test_case_15_when_all_die_before_the_first_token_the_client_gets_an_error_status(
    bitgear: Start, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": [up.url, other.url]})
    for upstream in (up, other):
        upstream.always([*sends(response(SHORT)[:2]), Close()])
    answer = await stream(gear.url)
    assert answer.status == 502
    assert answer.json()["error"]["type"] == "server_error"
    assert len(up.exchanges) + len(other.exchanges) <= 2


async def test_case_15_a_plain_answer_that_dies_is_retried(
    bitgear: Start, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": [up.url, other.url]}, config=UNBREAKABLE)
    wire = json_response(WIRE.odd_answer())
    for cut in range(0, len(wire), 13):
        seen = in_turn([[Send(wire[:cut]), Close()]], [Send(wire)], up, other)
        answer = await fetch(gear.url, CHAT_PATH, chat(model="g"))
        assert (answer.status, answer.body) == (200, WIRE.odd_answer())
        assert len(seen) == 2

"""Cases 11 to 17: streams pass unharmed, byte for byte, at once; those that die are retried or say so."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterable, Iterator
from typing import Any

import orjson
import pytest

from tests.cases.helpers import (
    CHAT_PATH,
    TEXT_WIRE,
    UNBREAKABLE,
    WIRE,
    Start,
    ask,
    in_turn,
    metric,
    rss_mib,
    settled,
    stream,
)
from tests.support.client import Answer, RawClient, chat, fetch
from tests.support.upstream import Close, Hang, Reset, ScriptedUpstream, Send, Step, Wait, sends
from tests.support.wire import DONE, ChatWire, Framing, chunk, crlf, error_body, event, json_response, response, split

SHORT = [WIRE.role(), WIRE.content("你😀"), WIRE.content("b", "stop")]
"""A realistic answer, short enough to be cut at each of its bytes."""
USAGE = WIRE.usage(13, 2)
WHOLE = [*SHORT, USAGE, DONE]


def script(wire: Iterable[bytes], framing: Framing = "chunked") -> list[Step]:
    return [*sends(wire), *([Close()] if framing == "close" else [])]


async def each(url: str, steps: Iterable[list[Step]], up: ScriptedUpstream, **more: Any) -> list[Answer]:
    """One streamed request after the other on one connection, each answered by the next script."""
    answers = []
    async with RawClient(url) as client:
        for one in steps:
            up.enqueue(one)
            await client.request("POST", CHAT_PATH, ask(**more))
            answers.append(await client.answer())
    return answers


# Case 11


async def test_case_11_usage_comes_last_with_empty_choices_where_asked(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    up.always(script(response(WHOLE)))
    answer = await stream(gear.url, stream_options={"include_usage": True})
    assert answer.body == b"".join(WHOLE)
    last = orjson.loads(answer.events()[-2])
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 13, "total_tokens": 15, "completion_tokens": 2}
    assert up.exchanges[0].json()["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"stream_options": None},
        {"stream_options": {}},
        {"stream_options": {"include_usage": False}},
        {"stream_options": {"include_usage": None}},
    ],
    ids=str,
)
async def test_case_11_no_usage_is_seen_where_not_asked_yet_it_is_accounted(
    bitgear: Start, up: ScriptedUpstream, more: dict[str, Any]
) -> None:
    gear = await bitgear({"fp16": up.url})
    up.always(script(response(WHOLE)))
    for _ in range(3):
        answer = await stream(gear.url, **more)
        assert answer.body == b"".join([*SHORT, DONE])
    await settled(gear, up)
    assert up.exchanges[0].json()["stream_options"]["include_usage"] is True
    assert await metric(gear, "bitgear_prompt_tokens_total") == 39
    assert await metric(gear, "bitgear_completion_tokens_total") == 6


async def test_case_11_usage_in_every_chunk_is_hidden_where_not_asked(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})

    def with_usage(raw: bytes, completion: int) -> bytes:
        told = b'],"usage":{"prompt_tokens":13,"total_tokens":%d,"completion_tokens":%d}}\n\n' % (
            13 + completion,
            completion,
        )
        return raw.replace(b"]}\n\n", told).replace(b'],"prompt_token_ids":null,"prompt_text":null}\n\n', told)

    up.always(script(response([*(with_usage(e, i) for i, e in enumerate(SHORT)), USAGE, DONE])))
    answer = await stream(gear.url, stream_options={"include_usage": False, "continuous_usage_stats": True})
    assert b"usage" not in answer.body
    deltas = [orjson.loads(e)["choices"][0]["delta"] for e in answer.events()[:-1]]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "你😀"}, {"content": "b"}]
    await settled(gear, up)
    assert await metric(gear, "bitgear_completion_tokens_total") == 2


async def test_case_11_usage_of_plain_and_text_completions_is_accounted(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    up.enqueue([Send(json_response(WIRE.odd_answer(7, 5)))], script(response(TEXT_WIRE.stream(["a", "b"], usage=True))))
    assert (await fetch(gear.url, CHAT_PATH, chat(model="g"))).body == WIRE.odd_answer(7, 5)
    answer = await fetch(gear.url, "/v1/completions", {"model": "g", "prompt": "x", "stream": True})
    assert answer.body == b"".join(TEXT_WIRE.stream(["a", "b"]))
    await settled(gear, up)
    assert await metric(gear, "bitgear_prompt_tokens_total") == 10
    assert await metric(gear, "bitgear_completion_tokens_total") == 7


async def test_case_11_usage_cut_at_every_byte_is_hidden_and_accounted(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    body = b"".join(WHOLE)
    begin = body.index(USAGE)
    cuts = range(begin, begin + len(USAGE) + 1)
    answers = await each(gear.url, (script(response(split(body, [c]))) for c in cuts), up)
    assert {a.body for a in answers} == {b"".join([*SHORT, DONE])}
    await settled(gear, up)
    assert await metric(gear, "bitgear_completion_tokens_total") == 2 * len(cuts)


# Case 12


@pytest.mark.parametrize("framing", ["chunked", "close", "length"])
async def test_case_12_event_split_at_every_byte(bitgear: Start, up: ScriptedUpstream, framing: Framing) -> None:
    gear = await bitgear({"fp16": up.url})
    wire = b"".join(response(WHOLE, framing))
    steps = (script(split(wire, [cut]), framing) for cut in range(1, len(wire)))
    for answer in await each(gear.url, steps, up, stream_options={"include_usage": True}):
        assert answer.status == 200
        assert answer.complete
        assert answer.body == b"".join(WHOLE)


async def test_case_12_crlf_events_split_at_every_byte(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    body = crlf(b"".join(WHOLE))
    steps = (script(response(split(body, [cut]))) for cut in range(1, len(body)))
    expected = crlf(b"".join([*SHORT, DONE]))
    for answer in await each(gear.url, steps, up):
        assert answer.body == expected


@pytest.mark.parametrize("framing", ["chunked", "close"])
async def test_case_12_every_byte_alone(bitgear: Start, up: ScriptedUpstream, framing: Framing) -> None:
    gear = await bitgear({"fp16": up.url})
    events = WIRE.odd_stream()
    wire = b"".join(response(events, framing))
    (answer,) = await each(gear.url, [script(split(wire, range(len(wire))), framing)], up)
    assert answer.body == b"".join(events)
    (answer,) = await each(gear.url, [script(response(split(b"".join(events), range(4000)), framing), framing)], up)
    assert answer.body == b"".join(events)


@pytest.mark.parametrize("size", [2, 3, 5, 7, 50, 209, 1000])
async def test_case_12_several_events_in_one_segment_and_one_in_several(
    bitgear: Start, up: ScriptedUpstream, size: int
) -> None:
    gear = await bitgear({"fp16": up.url})
    events = WIRE.stream([f"tok{i} é你" for i in range(40)], usage=True)
    body = b"".join(events)
    asked = {"stream_options": {"include_usage": True}}
    (answer,) = await each(gear.url, [script(response(split(body, range(0, len(body), size))))], up, **asked)
    assert answer.body == body
    (answer,) = await each(gear.url, [[Send(b"".join(response(events)))]], up, **asked)
    assert answer.body == body


async def test_case_12_model_is_renamed_wherever_it_is_cut(bitgear: Start, up: ScriptedUpstream) -> None:
    wire = ChatWire("served/name")
    up.model = "served/name"
    gear = await bitgear({"fp16": up.url}, variant={"served_model": "served/name"})
    body = b"".join(wire.stream(["a", "b"]))
    first, second = _places(body)
    cuts = [*range(first, first + 25), *range(second, second + 25)]
    expected = body.replace(b'"served/name"', b'"g"')
    for answer in await each(gear.url, (script(response(split(body, [c]))) for c in cuts), up):
        assert answer.body == expected
    assert up.exchanges[0].json()["model"] == "served/name"


def _places(body: bytes) -> tuple[int, int]:
    first = body.index(b'"model"')
    return first, body.index(b'"model"', first + 1)


COMMENTS = [
    b": ping\n\n",
    *SHORT[:1],
    b":\n\n",
    b": keep-alive\n",
    *SHORT[1:],
    b"\n",
    b": OPENROUTER PROCESSING\n\n",
    b"event: note\nid: 1\nretry: 1000\n\n",
    DONE,
    b": bye\n\n",
]


@pytest.mark.parametrize("ends", ["lf", "crlf"])
async def test_case_12_comments_and_keep_alives_pass_unharmed(bitgear: Start, up: ScriptedUpstream, ends: str) -> None:
    gear = await bitgear({"fp16": up.url})
    events = COMMENTS if ends == "lf" else [crlf(e) for e in COMMENTS]
    answers = await each(gear.url, [script(response(events)), [Send(b"".join(response(events)))]], up)
    told = [e for e in events if b"data:" in e]
    for answer in answers:
        # A comment may overtake a role that waits for its first token: it has no place in the order of events.
        body = answer.body
        assert [body.count(e) for e in told] == [1] * len(told)
        assert sorted(body) == sorted(b"".join(events))
        assert [body.index(e) for e in told] == sorted(body.index(e) for e in told)
        assert body.endswith(b"".join(events[4:]))


async def test_case_12_comments_of_a_silent_stream_reach_the_client_at_once(
    bitgear: Start, up: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": up.url})
    go = asyncio.Event()
    head, *rest = response([*SHORT, DONE])
    up.always([Send(head), Send(chunk(b": ping\n\n")), Wait(go), *sends(rest)])
    async with RawClient(gear.url) as client:
        await client.request("POST", CHAT_PATH, ask())
        answer = Answer(await client.head(timeout=2))
        async for piece in client.pieces(answer, timeout=2):
            if not go.is_set():
                assert piece.data == b": ping\n\n"
                go.set()
    assert answer.body == b": ping\n\n" + b"".join([*SHORT, DONE])


async def test_case_12_text_that_looks_like_framing_passes(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    texts = [
        "data: [DONE]\n\n",
        '"usage":{"prompt_tokens":1}',
        '{"error":{"message":"no"}}',
        "0\r\n\r\n",
        "\\",
        '"',
        "\u2028\x7f",
        "[DONE]",
    ]
    events = WIRE.stream(texts)
    for cut in (None, 1, 4):
        body = b"".join(events)
        pieces = split(body, range(0, len(body), cut)) if cut else events
        (answer,) = await each(gear.url, [script(response(pieces))], up)
        assert answer.body == body
    await settled(gear, up)
    (replica,) = gear.worker.fleet.variants()[0].replicas
    assert replica.failures == 0


async def test_case_12_a_huge_event_passes(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    events = [WIRE.role(), WIRE.content("é" * 3_000_000), WIRE.content("b", "stop"), DONE]
    body = b"".join(events)
    (answer,) = await each(gear.url, [script(response(split(body, range(0, len(body), 50_001))))], up)
    assert answer.body == body


async def test_case_12_plain_answers_keep_every_byte(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    odd = WIRE.odd_answer()
    wire = json_response(odd)
    for cut in range(1, len(wire), 7):
        up.enqueue(sends(split(wire, [cut])))
        answer = await fetch(gear.url, CHAT_PATH, chat(model="g"))
        assert (answer.status, answer.body) == (200, odd)
        assert answer.head.get("content-type") == "application/json"


# Case 13

ARGUMENTS = [
    '{\\"query',
    '\\": \\"caf\\u00e9 \\\\\\"x\\\\\\" ',
    "\\u4F60\\uD83D\\uDE00 \\/ ",
    "data: [DONE]\\\\n\\\\n",
    '\\", \\"usage\\": {\\"prompt_tokens\\": 1}, \\"error\\": {\\"message\\": \\"x\\"}',
    ', \\"n\\": 1.50, \\"model\\":\\"g\\"}',
]


async def test_case_13_tool_call_deltas_are_byte_identical(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    events = [WIRE.role(), WIRE.tool_start("search"), *map(WIRE.tool_arguments, ARGUMENTS), WIRE.tool_start("b", 1)]
    events += [WIRE.tool_arguments("{}", 1), WIRE.delta("{}", "tool_calls"), DONE]
    body = b"".join(events)
    for size in (None, 1, 11, 64):
        pieces = split(body, range(0, len(body), size)) if size else events
        (answer,) = await each(gear.url, [script(response(pieces))], up)
        assert answer.body == body
    parsed = [orjson.loads(e) for e in answer.events()[:-1]]
    calls = [c for p in parsed for c in p["choices"][0]["delta"].get("tool_calls", []) if c["index"] == 0]
    arguments = "".join(c["function"]["arguments"] for c in calls)
    assert orjson.loads(arguments)["query"] == 'café "x" 你😀 / data: [DONE]\n\n'


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
        async for _ in client.pieces(answer, timeout=2):
            for gate in gates[: answer.body.count(b"\n\n")]:
                gate.set()
    assert answer.body == b"".join(events)
    assert len(answer.pieces) >= 50


async def test_case_16_first_token_is_not_held_up(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    added = []
    for _ in range(40):
        go, sent = asyncio.Event(), 0.0
        head, role, first, *rest = response(WIRE.stream(["a", "b"]))
        up.enqueue([Send(head), Wait(go), Send(role), Send(first), Hang()])
        async with RawClient(gear.url) as client:
            await client.request("POST", CHAT_PATH, ask())
            await up.exchange(len(up.exchanges) if up.running == 0 else len(up.exchanges) - 1)
            sent = time.monotonic()
            go.set()
            answer = Answer(await client.head())
            async for piece in client.pieces(answer):
                added.append(piece.at - sent)
                break
        await settled(gear, up)
    # A missing TCP_NODELAY or a timer shows in every one as 40 ms; a busy machine only in some.
    assert statistics.quantiles(added, n=4)[0] < 0.005
    assert rest


# Case 17

FLOOD = chunk(WIRE.content("x" * 60_000))


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

"""Cases 11 to 13: streams pass unharmed, byte for byte, and usage is told where asked and always accounted."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from tests.cases.helpers import (
    CHAT_PATH,
    SHORT,
    TEXT_WIRE,
    USAGE,
    WHOLE,
    WIRE,
    Start,
    ask,
    each,
    metric,
    script,
    settled,
    stream,
)
from tests.support.client import Answer, RawClient, chat, fetch
from tests.support.upstream import ScriptedUpstream, Send, Wait, sends
from tests.support.wire import DONE, ChatWire, Framing, chunk, crlf, json_response, response, split

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
    # The framings differ below the events alone: every byte once, a third of them for each other framing.
    step = 1 if framing == "chunked" else 3
    steps = (script(split(wire, [cut]), framing) for cut in range(1, len(wire), step))
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
        answer = Answer(await client.head())
        async for piece in client.pieces(answer):
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

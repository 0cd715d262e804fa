"""A stream passes by whole events, byte for byte, however it was cut; and the relay learns what it needs from it."""

from __future__ import annotations

import random
import re

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.proxy import sse
from router.proxy.sse import StreamRelay, rename_model
from router.proxy.surface import Dialect
from router.proxy.usage import Usage
from tests.support.wire import DONE, ChatWire, CompletionWire, crlf, split

WIRE = ChatWire()
ANY = settings(max_examples=80, deadline=None)

pieces = st.sampled_from(
    [
        WIRE.role(),
        WIRE.content("a"),
        WIRE.content('"usage" \\ "error" data: [DONE]\n\n你好 😀'),
        WIRE.tool_start("f"),
        WIRE.tool_arguments('{\\"a\\": \\"\\u4f60'),
        *WIRE.odd_stream()[1:-1],
        b": ping\n\n",
        b":\n\n",
        b"event: x\nid: 7\nretry: 10\ndata: {}\n\n",
        b'data: {"choices":[{"index":0,\ndata: "delta":{"content":"two lines"}}]}\n\n',
        b"data: not json\n\n",
        b"data:\n\n",
        b"\n\n",
        b"unknown\n\n",
        WIRE.usage(5, 7),
        WIRE.error(),
        DONE,
    ]
)
line_ends = st.sampled_from([b"\n", b"\r\n", b"\r"])


def run(parts: list[bytes], dialect: Dialect = "openai", **options: object) -> tuple[bytes, StreamRelay]:
    relay = StreamRelay(dialect, **{"hide_usage": False, **options})  # type: ignore[arg-type]
    out = b"".join([relay.feed(p) for p in parts])
    return out + relay.finish(), relay


def every_cut(stream: bytes) -> list[list[bytes]]:
    return [[stream], split(stream, range(len(stream))), *([stream[:i], stream[i:]] for i in range(1, len(stream)))]


def random_cuts(stream: bytes, seed: int) -> list[list[bytes]]:
    rng = random.Random(seed)
    sizes = [rng.randrange(1, 9) for _ in range(5)]
    cuts = [rng.sample(range(len(stream) + 1), min(len(stream), n)) for n in sizes]
    return [split(stream, range(len(stream))), *(split(stream, c) for c in cuts)]


@ANY
@given(st.lists(pieces, max_size=8), line_ends, st.sampled_from([b"", b"data: unfinished"]), st.integers(0, 2**32))
def test_any_stream_cut_anywhere_gives_the_same_bytes(events: list[bytes], end: bytes, rest: bytes, seed: int) -> None:
    stream = b"".join([WIRE.content("first"), *events]).replace(b"\n", end) + rest
    for cuts in random_cuts(stream, seed):
        assert run(cuts)[0] == stream


@ANY
@given(st.lists(pieces, max_size=8), st.sampled_from([b"\n", b"\r\n"]), st.integers(0, 2**32))
def test_hiding_usage_drops_that_event_and_nothing_else(events: list[bytes], end: bytes, seed: int) -> None:
    events = [WIRE.content("first"), *events]
    kept = b"".join(e for e in events if e != WIRE.usage(5, 7)).replace(b"\n", end)
    for cuts in random_cuts(b"".join(events).replace(b"\n", end), seed):
        out, relay = run(cuts, hide_usage=True)
        assert out == kept
        assert relay.usage == (Usage(5, 7) if WIRE.usage(5, 7) in events else None)


def blocks(stream: bytes) -> list[bytes]:
    return re.findall(rb".*?(?:\r\n\r\n|\n\n|\r\r)", stream, re.DOTALL)


@ANY
@given(st.lists(pieces.filter(lambda e: e != b"\n\n"), max_size=8), line_ends, st.integers(0, 2**32))
def test_while_a_role_is_held_only_comments_may_overtake_it(events: list[bytes], end: bytes, seed: int) -> None:
    stream = b"".join([WIRE.role(), *events]).replace(b"\n", end)
    for cuts in random_cuts(stream, seed):
        out = run(cuts)[0]
        assert sorted(blocks(out)) == sorted(blocks(stream))
        assert [e for e in blocks(out) if b"data:" in e] == [e for e in blocks(stream) if b"data:" in e]


@pytest.mark.parametrize("wire", [WIRE, CompletionWire()])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_whole_answer_at_every_cut(wire: ChatWire | CompletionWire, end: bytes) -> None:
    stream = b"".join(wire.stream(["a", "你"], 5, usage=True)).replace(b"\n", end)
    hidden = b"".join(wire.stream(["a", "你"], 5)).replace(b"\n", end)
    for cuts in every_cut(stream):
        out, relay = run(cuts, hide_usage=True)
        assert out == hidden
        assert (relay.usage, relay.ended, relay.first_token, relay.error) == (Usage(5, 2), True, True, None)


def test_every_event_leaves_with_its_last_byte() -> None:
    for make in (lambda e: e, crlf):
        relay = StreamRelay("openai", hide_usage=False)
        assert relay.feed(make(WIRE.role())) == b""
        for event in map(make, [WIRE.content("a"), WIRE.content("b"), DONE]):
            assert relay.feed(event[:-1]) == b""
            expected = event if event != make(WIRE.content("a")) else make(WIRE.role()) + event
            assert relay.feed(event[-1:]) == expected


def test_before_the_first_token_everything_is_held() -> None:
    relay = StreamRelay("openai", hide_usage=False)
    assert relay.feed(WIRE.role()) == b""
    assert not relay.first_token
    assert relay.feed(WIRE.content("a")) == WIRE.role() + WIRE.content("a")
    assert relay.first_token
    assert relay.feed(WIRE.content("b")) == WIRE.content("b")


@pytest.mark.parametrize(
    "event",
    [
        WIRE.content("", "stop"),
        WIRE.tool_start("f"),
        WIRE.delta('{"reasoning":"hm"}'),
        WIRE.delta('{"role":"assistant","content":"x"}'),
        CompletionWire().text("x"),
        DONE,
        WIRE.error(),
        b"data: not json\n\n",
        b"data: 5\n\n",
    ],
)
def test_what_ends_the_holding(event: bytes) -> None:
    relay = StreamRelay("openai", hide_usage=False)
    relay.feed(WIRE.role())
    assert relay.feed(event) == WIRE.role() + event
    assert relay.first_token


@pytest.mark.parametrize("event", [WIRE.role(), CompletionWire().text(""), b'data: {"choices":[]}\n\n'])
def test_what_does_not_end_the_holding(event: bytes) -> None:
    relay = StreamRelay("openai", hide_usage=False)
    assert relay.feed(event) == b""
    assert not relay.first_token


def test_only_so_much_is_held() -> None:
    relay = StreamRelay("openai", hide_usage=False)
    out = b"".join(relay.feed(WIRE.role()) for _ in range(sse.MAX_HELD // len(WIRE.role()) + 2))
    assert len(out) > sse.MAX_HELD
    assert relay.first_token


def test_an_error_inside_the_stream_is_told_and_passed() -> None:
    stream = [WIRE.role(), WIRE.content("a"), WIRE.error("boom", 500), DONE]
    for cuts in every_cut(b"".join(stream)):
        out, relay = run(cuts)
        assert out == b"".join(stream)
        assert orjson.loads(relay.error or "")["code"] == 500


def test_usage_beside_choices_is_cut_out_and_the_rest_stays() -> None:
    event = (
        b'data: {"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n'
    )
    out, relay = run([event], hide_usage=True)
    assert orjson.loads(out[6:]) == {"choices": [{"index": 0, "delta": {"content": "a"}}]}
    assert relay.usage == Usage(3, 1)


def test_usage_that_is_null_stays() -> None:
    event = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}],"usage":null}\n\n'
    assert run([event], hide_usage=True)[0] == event


def test_an_oversized_event_passes_as_it_comes_and_the_next_ones_are_seen_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT", 300)
    for end in (b"\n", b"\r\n"):
        big = WIRE.content("x" * 2000)
        stream = b"".join([WIRE.role(), WIRE.content("a"), big, WIRE.usage(5, 7), DONE]).replace(b"\n", end)
        for size in (1, 2, 3, 5, 7, 64, 1000):
            cuts = split(stream, range(0, len(stream), size))
            out, relay = run(cuts, hide_usage=True)
            assert out == stream.replace(WIRE.usage(5, 7).replace(b"\n", end), b"")
            assert relay.ended
            assert relay.usage == Usage(5, 7)
            assert not relay.inside_event


def test_memory_of_an_endless_event_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT", 1000)
    relay = StreamRelay("openai", hide_usage=False)
    passed = sum(len(relay.feed(b"data: " + b"x" * 94)) for _ in range(1000))
    assert passed > 95_000
    assert len(relay._tail) <= 1100
    assert relay.inside_event


RESPONSES = [
    b'event: response.created\ndata: {"type":"response.created","response":{"model":"m","error":null,"usage":null}}\n\n',
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"a"}\n\n',
    b'event: response.completed\ndata: {"type":"response.completed","response":{"error":null,"usage":{"input_tokens":4,"output_tokens":2}}}\n\n',
]
ANTHROPIC = [
    b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":4,"output_tokens":0}}}\n\n',
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0}\n\n',
    b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"a"}}\n\n',
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}\n\n',
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
]


@pytest.mark.parametrize(("dialect", "events", "held"), [("responses", RESPONSES, 1), ("anthropic", ANTHROPIC, 2)])
def test_the_other_dialects(dialect: Dialect, events: list[bytes], held: int) -> None:
    stream = b"".join(events)
    for cuts in every_cut(stream)[::7]:
        out, relay = run(cuts, dialect)
        assert out == stream
        assert (relay.ended, relay.usage, relay.error) == (True, Usage(4, 2), None)
    relay = StreamRelay(dialect, hide_usage=False)
    assert all(relay.feed(e) == b"" for e in events[:held])
    assert not relay.first_token
    assert relay.feed(events[held]) == b"".join(events[: held + 1])
    unfinished, relay = run(events[:-1], dialect)
    assert unfinished == b"".join(events[:-1])
    assert not relay.ended


@pytest.mark.parametrize(
    ("dialect", "event"),
    [
        ("responses", b'event: error\ndata: {"type":"error","code":"x","message":"boom"}\n\n'),
        ("responses", b'data: {"type":"response.failed","response":{"error":{"message":"boom"}}}\n\n'),
        ("anthropic", b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"boom"}}\n\n'),
    ],
)
def test_their_errors_are_seen(dialect: Dialect, event: bytes) -> None:
    out, relay = run([event], dialect)
    assert out == event
    assert "boom" in (relay.error or "")


def test_the_model_is_renamed_whereever_it_is_cut_and_only_as_a_field() -> None:
    served = ChatWire("served/model")
    text = served.content('say "model":"served/model" and \\"model\\": served/model')
    stream = b"".join([served.role(), text, served.content("b", "stop"), DONE])
    expected = stream.replace(b'"model":"served/model","choices"', b'"model":"g@int8","choices"')
    for cuts in every_cut(stream):
        assert run(cuts, rename=(b'"served/model"', b'"g@int8"'))[0] == expected
    assert rename_model(b'{"model": "a", "x": "a"}', b'"a"', b'"b"') == b'{"model": "b", "x": "a"}'

"""Plain answers and streams are the same answer, whichever way they came."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.cache.answers import as_stream, checked
from router.cache.assemble import from_stream
from router.proxy.usage import Usage
from tests.support.wire import DONE, ChatWire, CompletionWire, crlf, dumps

WIRE, TEXT = ChatWire("m"), CompletionWire("m")
CHAT, COMPLETION = "chat.completions", "completions"
TEXTS = st.text(max_size=6)
LOGPROBS = st.none() | st.builds(
    lambda n: {"content": [{"token": "x", "logprob": -n / 7, "bytes": None, "top_logprobs": []}], "refusal": None},
    st.integers(0, 9),
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": st.none() | TEXTS},
    optional={
        "reasoning": TEXTS,
        "reasoning_content": TEXTS,
        "annotations": st.just([]),
        "refusal": st.none(),
        "tool_calls": st.lists(
            st.builds(
                lambda i, n, a: {"id": i, "type": "function", "function": {"name": n, "arguments": a}},
                st.text("ab", min_size=1),
                st.text("fg", min_size=1),
                TEXTS,
            ),
            min_size=1,
            max_size=3,
        ),
    },
)
CHOICES = st.builds(
    lambda m, f, lp: {"message": m, "finish_reason": f, "stop_reason": None, "logprobs": lp},
    MESSAGES,
    st.sampled_from(["stop", "tool_calls", "length"]),
    LOGPROBS,
)
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def whole(choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    numbered = [{"index": i, **c} for i, c in enumerate(choices)]
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "system_fingerprint": "f"}
    return {**head, **more, "choices": numbered, "usage": USAGE}


def bare(value: Any) -> Any:
    """Without what says nothing: null, empty lists, and no text beside tool calls."""
    if isinstance(value, dict):
        kept = {k: bare(v) for k, v in value.items()}
        return {k: v for k, v in kept.items() if v is not None and v != [] and not (k == "content" and v == "")}
    return [bare(v) for v in value] if isinstance(value, list) else value


@settings(deadline=None)
@given(st.lists(CHOICES, min_size=1, max_size=3))
def test_a_plain_answer_comes_back_from_its_stream(choices: list[dict[str, Any]]) -> None:
    answer = whole(choices)
    stream = as_stream(json.dumps(answer).encode(), CHAT, True)
    back = from_stream(stream, CHAT)
    assert back is not None
    assert bare(json.loads(back)) == bare(answer)
    # Without usage it is no whole answer to keep.
    assert from_stream(as_stream(json.dumps(answer).encode(), CHAT, False), CHAT) is None


@settings(deadline=None)
@given(st.lists(st.text(max_size=4), min_size=1, max_size=5), st.booleans())
def test_a_stream_of_text(parts: list[str], lines: bool) -> None:
    raw = b"".join([WIRE.role(), *map(WIRE.content, parts), WIRE.content("", "stop"), WIRE.usage(1, 2), DONE])
    back = from_stream(crlf(raw) if lines else raw, CHAT)
    assert back is not None
    answer = json.loads(back)
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "".join(parts)}
    assert answer["usage"]["completion_tokens"] == 2
    assert (answer["id"], answer["object"]) == (WIRE.id, "chat.completion")


def test_completions_both_ways() -> None:
    raw = b"".join([*TEXT.stream(["a", "b"], usage=True)])
    back = from_stream(raw, COMPLETION)
    assert back is not None
    assert json.loads(back)["choices"][0]["text"] == "ab"
    again = from_stream(as_stream(back, COMPLETION, True), COMPLETION)
    assert bare(json.loads(again or b"")) == bare(json.loads(back))


def test_logprobs_of_completions_are_joined() -> None:
    def chunk(token: str, reason: str) -> bytes:
        lp = {"tokens": [token], "token_logprobs": [-0.5], "top_logprobs": [{token: -0.5}], "text_offset": [0]}
        head = '{"id":"x","object":"text_completion","created":1,"model":"m","choices":'
        return f'data: {head}[{{"index":0,"text":"{token}","logprobs":{dumps(lp)},"finish_reason":{reason}}}]}}\n\n'.encode()

    raw = chunk("a", "null") + chunk("b", '"stop"') + TEXT.usage(1, 2) + DONE
    # The usage chunk of another answer is no part of this one.
    assert from_stream(raw, COMPLETION) is None
    raw = raw.replace(b'"x"', TEXT.id.encode().join([b'"', b'"'])).replace(b'"created":1,', b'"created":1796021585,')
    found = json.loads(from_stream(raw, COMPLETION) or b"")
    assert found["choices"][0]["logprobs"]["tokens"] == ["a", "b"]


ROLE, SAY, END, TOLD = WIRE.role(), WIRE.content("a"), WIRE.content("b", "stop"), WIRE.usage(1, 2)


@pytest.mark.parametrize(
    "events",
    [
        [],
        [DONE],
        [ROLE, SAY, END, TOLD],
        [ROLE, SAY, END, DONE],
        [ROLE, SAY, END, TOLD, DONE, SAY],
        [ROLE, SAY, END, b"data: {broken\n\n", TOLD, DONE],
        [ROLE, SAY, END, WIRE.error(), TOLD, DONE],
        [ROLE, SAY, WIRE.content("z", "stop", index=2), TOLD, DONE],
        [ROLE, WIRE.delta('{"odd":1}'), WIRE.delta('{"odd":2}'), END, TOLD, DONE],
        [ROLE, WIRE.delta('{"content":7}'), SAY, END, TOLD, DONE],
        [ROLE, WIRE.delta('{"tool_calls":[{"index":1,"id":"x"}]}'), END, TOLD, DONE],
        [ROLE, WIRE.tool_start("f"), WIRE.tool_start("g"), END, TOLD, DONE],
        [b'data: {"object":"chat.completion.chunk","choices":[1]}\n\n', END, TOLD, DONE],
        [b"data: []\n\n", END, TOLD, DONE],
    ],
)
def test_what_is_unclear_is_not_kept(events: list[bytes]) -> None:
    assert from_stream(b"".join(events), CHAT) is None


@settings(deadline=None)
@given(st.binary(max_size=80), st.sampled_from([CHAT, COMPLETION]))
def test_any_bytes_are_no_stream(data: bytes, kind: str) -> None:
    assert from_stream(data, kind) is None
    assert checked(data, kind, True) is None


@pytest.mark.parametrize(
    ("change", "limited", "kept"),
    [
        ({}, False, True),
        ({"finish_reason": "length"}, False, False),
        ({"finish_reason": "length"}, True, True),
        ({"finish_reason": "content_filter"}, True, False),
        ({"finish_reason": "abort"}, True, False),
        ({"finish_reason": None}, True, False),
        ({"message": {"content": "a", "refusal": "no"}}, True, False),
        ({"message": None}, True, False),
        ({"error": {"code": 1}}, True, False),
    ],
)
def test_which_answers_are_kept(change: dict[str, Any], limited: bool, kept: bool) -> None:
    good = {"message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
    body = json.dumps(whole([good, {**good, **change}])).encode()
    assert checked(body, CHAT, limited) == (Usage(3, 4) if kept else None)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"error":{}}', b'{"data":[],"usage":{"prompt_tokens":1}}'])
def test_no_answer_at_all(body: bytes) -> None:
    for kind in (CHAT, COMPLETION, "embeddings"):
        assert checked(body, kind, True) is None


ODD = st.sampled_from(
    ["null", "0", "-1", "1.5", "true", "[]", "{}", "[null]", "[1]", '""', '"x"', '["stop"]', '{"a":1}', '[{"type":[]}]']
).map(json.loads)
PLAIN: dict[str, dict[str, Any]] = {
    CHAT: whole(
        [{"message": {"role": "assistant", "content": "hi", "tool_calls": [{"id": "a"}]}, "finish_reason": "stop"}]
    ),
    COMPLETION: whole([{"text": "hi", "finish_reason": "stop"}]),
    "messages": {
        "type": "message",
        "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "hi"}, {"type": "tool_use", "id": "i", "name": "n", "input": {}}],
        "usage": USAGE,
    },
    "responses": {
        "object": "response",
        "status": "completed",
        "output": [
            {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "hi"}]},
            {"type": "function_call", "id": "f", "name": "n", "arguments": "{}"},
        ],
        "usage": USAGE,
    },
}


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something may stand otherwise: each key, each item."""
    found = [at] if at else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*at, key))
    return found


@pytest.mark.parametrize("kind", sorted(PLAIN))
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_what_is_kept_can_be_streamed_however_odd_the_answer_was(kind: str, data: st.DataObject) -> None:
    answer = json.loads(json.dumps(PLAIN[kind]))
    assert checked(dumps(answer), kind, False) is not None
    for _ in range(data.draw(st.integers(1, 2))):
        *path, last = data.draw(st.sampled_from(places(answer)))
        holder = answer
        for key in path:
            holder = holder[key]
        if data.draw(st.booleans()) or not isinstance(holder, dict):
            holder[last] = data.draw(ODD)
        else:
            del holder[last]
    raw = dumps(answer)
    if checked(raw, kind, False) is not None:
        as_stream(raw, kind, True)


@pytest.mark.parametrize("tokens", [2**31, 2**63, 2**64 - 1])
def test_a_count_that_no_answer_has_is_none(tokens: int) -> None:
    answer = PLAIN[CHAT] | {"usage": {"prompt_tokens": tokens, "completion_tokens": 4}}
    assert checked(dumps(answer), CHAT, False) == Usage(0, 4)

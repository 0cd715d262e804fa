from __future__ import annotations

import base64
import random
import time

import pytest

from classifier.conversation import MAX_CHARS, clip, view


def said(*turns: tuple[str, str]) -> dict[str, object]:
    return {"messages": [{"role": role, "content": text} for role, text in turns]}


def test_reads_chat() -> None:
    seen = view(said(("system", "Be brief."), ("user", "One?"), ("assistant", "1"), ("user", "And two, please?")))
    assert seen.text == "Be brief. One? 1 And two, please?"
    assert seen.last == "And two, please?"
    assert seen.longest_chars == len("And two, please?")
    assert seen.turns == 4
    assert not seen.sampled


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"prompt": "abc"}, "abc"),
        ({"prompt": ["abc", "def"]}, "abc def"),
        ({"input": "abc"}, "abc"),
        ({"input": ["abc", "def"]}, "abc def"),
        ({"instructions": "Be kind.", "input": [{"role": "user", "content": "abc"}]}, "Be kind. abc"),
        ({"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "abc"}]}]}, "abc"),
        ({"input": [{"type": "function_call_output", "call_id": "1", "output": "result"}]}, "result"),
        ({"system": [{"type": "text", "text": "S"}], "messages": [{"role": "user", "content": "abc"}]}, "S abc"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "r"}]}]}
                ]
            },
            "r",
        ),
        ({"messages": "not a list"}, "not a list"),
        ({"messages": [None, 3, {"role": 5, "content": "x"}, ["y"]]}, "  x y"),
        ({}, ""),
    ],
)
def test_reads_each_api(body: dict[str, object], text: str) -> None:
    assert view(body).text == text


def test_token_ids_count_by_length() -> None:
    assert view({"prompt": list(range(100))}).longest_chars == 400
    assert view({"prompt": [[1] * 50, [2] * 100]}).longest_chars == 400


def test_images_are_counted_and_not_read() -> None:
    url = "data:image/png;base64," + base64.b64encode(random.Random(0).randbytes(3000)).decode()
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "image", "source": {"type": "base64", "data": url}},
        {"type": "input_image", "image_url": url},
    ]
    seen = view({"messages": [{"role": "user", "content": parts}]})
    assert seen.images == 3
    assert seen.text == "What is this?"
    assert seen.total_chars == len("What is this?")


@pytest.mark.parametrize(
    ("extra", "structured"),
    [
        ({}, False),
        ({"response_format": {"type": "text"}}, False),
        ({"response_format": {"type": "json_object"}}, True),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}}, True),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, True),
        ({"guided_regex": "a+"}, True),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, True),
        ({"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"}, False),
        ({"tools": "wrong"}, False),
    ],
)
def test_structured(extra: dict[str, object], structured: bool) -> None:
    assert view({**said(("user", "hi")), **extra}).structured is structured


def test_long_texts_are_sampled_the_same_way() -> None:
    text = " ".join(str(number) for number in range(200_000))
    seen = view(said(("system", text), ("user", text), ("assistant", text), ("user", text)))
    assert seen.sampled
    assert len(seen.text) <= MAX_CHARS + 100
    assert seen.total_chars == 4 * len(text)
    assert seen == view(said(("system", text), ("user", text), ("assistant", text), ("user", text)))
    assert seen.last.startswith("0 1 2")
    assert seen.last.endswith("199999")


def test_many_messages_are_bounded() -> None:
    body = said(*[("user", f"message {number}") for number in range(100_000)])
    started = time.thread_time()
    seen = view(body)
    assert time.thread_time() - started < 0.05
    assert seen.turns == 100_000
    assert seen.sampled
    assert seen.last == "message 99999"


def test_clip_keeps_head_tail_and_middle() -> None:
    text = "".join(chr(97 + number * 26 // 26_000) for number in range(26_000))
    short = clip(text, 1200)
    assert len(short) <= 1210
    assert short.startswith("aaa")
    assert short.endswith("zzz")
    assert len(set(short) - {" "}) >= 6
    assert clip("abc", 1200) == "abc"


def test_deep_nesting_is_bounded() -> None:
    nested: object = "x"
    for _ in range(5000):
        nested = [nested]
    seen = view(
        {"messages": [{"role": "user", "content": nested}], "tools": nested, "response_format": {"type": nested}}
    )
    assert seen.schema_nodes <= 400

"""Fields of wrong types are named; what vLLM takes is never refused; lengths are estimated from below."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.proxy.errors import ApiError
from router.proxy.surface import CHAT, ENDPOINTS, OTHER
from router.proxy.validation import output_limit, text_units, validate

USER = [{"role": "user", "content": "hi"}]
ANY = settings(max_examples=150, deadline=None)
json_values = st.recursive(
    st.sampled_from([None, True, 0, -1, 1.5, "", "x", "你好"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "text", "type", "a"]), inner, max_size=3)
    ),
    max_leaves=8,
)


def refused(body: dict[str, Any], path: bytes = b"/v1/chat/completions") -> str | None:
    with pytest.raises(ApiError) as caught:
        validate(body, ENDPOINTS[path])
    assert caught.value.status == 400
    assert caught.value.param is not None
    assert caught.value.message.startswith(f"{caught.value.param}: ")
    return caught.value.param


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        *(("stream", v) for v in ("true", 1, [], {})),
        *(
            (f, v)
            for f in ("max_tokens", "max_completion_tokens", "max_output_tokens", "n", "seed")
            for v in ("5", True, 1.5)
        ),
        *(
            (f, v)
            for f in ("temperature", "top_p", "presence_penalty", "frequency_penalty")
            for v in ("0.5", False, [])
        ),
        *(("stop", v) for v in (1, {}, True)),
        *((f, "x") for f in ("tools", "response_format", "logit_bias", "stream_options")),
        ("user", 5),
    ],
)
def test_a_field_of_a_wrong_type_is_named(field: str, wrong: object) -> None:
    assert refused({"messages": USER, field: wrong}) == field


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ("hi", "messages"),
        ({}, "messages"),
        ([], "messages"),
        (["hi"], "messages[0]"),
        ([{"content": "hi"}], "messages[0].role"),
        ([*USER, {"role": 5}], "messages[1].role"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": {"text": "x"}}], "messages[0].content"),
    ],
)
def test_a_message_at_fault_is_named(messages: object, param: str) -> None:
    assert refused({"messages": messages}) == param


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (b"/v1/completions", {}, "prompt"),
        (b"/v1/completions", {"prompt": 5}, "prompt"),
        (b"/v1/completions", {"prompt": []}, "prompt"),
        (b"/v1/embeddings", {}, "input"),
        (b"/v1/embeddings", {"messages": []}, "messages"),
        (b"/v1/responses", {}, "input"),
        (b"/v1/responses", {"input": {}}, "input"),
        (b"/v1/messages", {}, "messages"),
        (b"/detokenize", {}, "tokens"),
    ],
)
def test_what_each_path_needs_is_named(path: bytes, body: dict[str, Any], param: str) -> None:
    assert refused(body, path) == param


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (b"/v1/chat/completions", {"messages": [{"role": "assistant", "content": None, "tool_calls": []}]}),
        (b"/v1/chat/completions", {"messages": [{"role": "tool", "tool_call_id": "x"}], "stop": ["a"], "n": None}),
        (b"/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}], "top_k": -1}),
        (b"/v1/chat/completions", {"messages": USER, "stream": True, "stream_options": {"include_usage": True}}),
        (b"/v1/chat/completions", {"messages": USER, "temperature": 0, "seed": -5, "logit_bias": {"5": 1}}),
        (b"/v1/completions", {"prompt": ""}),
        (b"/v1/completions", {"prompt": [[1, 2], [3]]}),
        (b"/v1/completions", {"prompt": None, "prompt_embeds": "AAAA"}),
        (b"/v1/embeddings", {"input": [1, 2, 3]}),
        (b"/v1/embeddings", {"messages": USER}),
        (b"/v1/responses", {"input": [{"role": "user", "content": "x"}]}),
        (b"/v1/messages", {"messages": USER, "max_tokens": 5, "system": [{"type": "text", "text": "x"}]}),
        (b"/tokenize", {"prompt": "x"}),
        (b"/tokenize", {"messages": USER}),
        (b"/detokenize", {"tokens": [1]}),
    ],
)
def test_what_vllm_takes_is_never_refused(path: bytes, body: dict[str, Any]) -> None:
    validate(body, ENDPOINTS[path])


def test_stream_options_without_a_stream_are_refused() -> None:
    assert refused({"messages": USER, "stream_options": {}}) == "stream_options"


@ANY
@given(
    json_values,
    st.sampled_from([*ENDPOINTS.values(), OTHER]),
    st.dictionaries(st.sampled_from(["stream", "n", "stop", "tools"]), json_values),
)
def test_any_json_either_passes_or_is_a_400(value: Any, endpoint: Any, more: dict[str, Any]) -> None:
    for name in ("messages", "prompt", "input", "tokens"):
        body = {**more, name: value}
        units, least = text_units(body)
        assert units >= 0
        assert least >= 0
        statuses = []
        try:
            validate(body, endpoint)
        except ApiError as error:
            statuses.append(error.status)
        assert statuses in ([], [400])


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 7, "max_tokens": 5}, 7),
        ({"max_completion_tokens": None, "max_tokens": 5}, 5),
        ({"max_output_tokens": 9}, 9),
        ({"max_tokens": True}, None),
        ({"max_tokens": "5"}, None),
    ],
)
def test_the_limit_on_the_answer_has_several_names(body: dict[str, Any], limit: int | None) -> None:
    assert output_limit(body) == limit


def test_the_size_of_a_prompt_counts_every_text_of_the_conversation() -> None:
    parts = [{"type": "text", "text": "x" * 400}, {"type": "image_url", "image_url": {"url": "data:" + "A" * 10**6}}]
    body = {"messages": [{"role": "system", "content": "y" * 400}, {"role": "user", "content": parts}]}
    assert text_units(body) == (200.0, 50)
    assert text_units({**body, "tools": [{}, {}]})[0] == 320.0
    assert text_units({"prompt": "你好" * 100})[0] == pytest.approx(140)
    assert text_units({"prompt": [5] * 300}) == (300.0, 300)
    # Several prompts are prefilled together, but each has the whole context to itself.
    assert text_units({"prompt": [[5] * 300, [6] * 100]}) == (400.0, 300)
    assert text_units({"prompt": ["x" * 1600] * 100}) == (40000.0, 100)
    assert text_units({"prompt": "x" * 1600, "truncate_prompt_tokens": 10})[1] == 0
    assert text_units({"system": "x" * 40, "instructions": "x" * 40, "input": ["x" * 40]})[0] == 30.0
    assert text_units({}) == (0.0, 0)


@ANY
@given(st.text(max_size=300))
def test_the_lower_bound_is_far_below_any_tokenizer(text: str) -> None:
    units, least = text_units({"prompt": text})
    assert least <= len(text) / 16
    assert least <= units + 1


def test_deep_nesting_of_content_is_walked_without_recursion() -> None:
    content: Any = "x" * 40
    for _ in range(5000):
        content = [{"content": content}]
    assert text_units({"messages": content})[0] == 10.0


def test_chat_is_the_endpoint_of_decisions_alone() -> None:
    assert ENDPOINTS[b"/v1/chat/completions"] is CHAT

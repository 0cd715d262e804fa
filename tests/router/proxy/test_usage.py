"""Token counts out of answers and events, in the words of each API, without trusting their shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.proxy.usage import Usage, usage_of, usage_of_answer, usage_of_event
from tests.support.wire import ChatWire, CompletionWire

ANY = settings(max_examples=200, deadline=None)
odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(["", "usage", '"usage":{"prompt_tokens":9}', "{", "}"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["usage", "prompt_tokens", "completion_tokens", "response", "message", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}, Usage(3, 4)),
        ({"input_tokens": 3, "output_tokens": 4}, Usage(3, 4)),
        ({"prompt_tokens": 3}, Usage(3, 0)),
        ({"output_tokens": 4}, Usage(0, 4)),
        ({}, None),
        ({"prompt_tokens": "3"}, None),
        ([], None),
        (None, None),
    ],
)
def test_usage_objects(value: object, expected: Usage | None) -> None:
    assert usage_of(value) == expected


@pytest.mark.parametrize("answer", [ChatWire().answer(), CompletionWire().answer(), ChatWire().odd_answer()])
def test_it_is_found_in_real_answers(answer: bytes) -> None:
    told = json.loads(answer)["usage"]
    assert usage_of_answer(answer) == Usage(told["prompt_tokens"], told["completion_tokens"])


def test_text_that_looks_like_usage_is_not_taken() -> None:
    fake = '"usage":{"prompt_tokens":999,"completion_tokens":999}'
    assert usage_of_answer(ChatWire().answer(fake, 3, 4)) == Usage(3, 4)
    body = json.dumps({"usage": {"prompt_tokens": 3, "completion_tokens": 4}, "text": "{" + fake}).encode()
    assert usage_of_answer(body) == Usage(3, 4)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"usage":null}', b'{"usage":{', b'{"usage":{"prompt_tokens":', b"\xff"])
def test_an_answer_without_it_has_none(body: bytes) -> None:
    assert usage_of_answer(body) is None


def test_details_within_it_do_no_harm() -> None:
    body = b'{"usage":{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":2},"completion_tokens":4}}'
    assert usage_of_answer(body) == Usage(3, 4)


@ANY
@given(odd, st.none() | st.builds(Usage, st.integers(0, 9), st.integers(0, 9)))
def test_any_json_gives_a_usage_or_none(value: Any, before: Usage | None) -> None:
    found = usage_of_answer(json.dumps(value).encode())
    assert found is None or isinstance(found, Usage)
    if isinstance(value, dict):
        later = usage_of_event(value, before)
        assert later is None or isinstance(later, Usage)


def test_the_last_event_with_a_usage_counts() -> None:
    seen = usage_of_event({"usage": {"prompt_tokens": 3, "completion_tokens": 1}}, None)
    assert usage_of_event({"choices": []}, seen) == Usage(3, 1)
    assert usage_of_event({"usage": {"prompt_tokens": 3, "completion_tokens": 2}}, seen) == Usage(3, 2)


def test_anthropics_two_halves_are_put_together() -> None:
    begun = usage_of_event({"message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}, None)
    assert usage_of_event({"usage": {"output_tokens": 5}}, begun) == Usage(9, 5)


def test_responses_tell_it_within_the_response() -> None:
    assert usage_of_event({"response": {"usage": {"input_tokens": 1, "output_tokens": 2}}}, None) == Usage(1, 2)

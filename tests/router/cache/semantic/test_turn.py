"""The last turn of a conversation, where other wordings may do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.cache.semantic.turn import last_turn, without_turn

USER = {"role": "user", "content": "How far is the moon?"}


def of(messages: Any, **more: Any) -> str | None:
    body = {"messages": messages, **more}
    return last_turn(json.dumps(body).encode(), body)


def test_the_users_last_words() -> None:
    before = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    assert of([*before, USER]) == "How far is the moon?"
    body = {"model": "m", "messages": [*before, {**USER, "name": "ann"}]}
    left = without_turn(body)
    assert left == {"model": "m", "messages": [*before, {"role": "user", "content": None, "name": "ann"}]}
    assert body["messages"][-1]["content"] == USER["content"]


@pytest.mark.parametrize(
    "messages",
    [None, "text", [{"role": "assistant", "content": "a"}], [{"role": "user", "content": [{"type": "text"}]}], [{}]],
)
def test_nothing_but_a_users_text(messages: Any) -> None:
    assert of(messages) is None


def test_a_number_that_is_not_read_exactly_keeps_the_exact_text() -> None:
    assert of([USER], seed=10**30) is None

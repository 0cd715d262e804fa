"""Judges tell what they can and stay silent else; whether they speak never depends on the answer that is judged."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.config.loop import JUDGE_NAMES
from router.feedback.judges import JUDGES, Pair, Tools, Verdict
from router.feedback.judges.choice import final
from router.feedback.judges.match import normalised
from router.feedback.judges.schema import TooLarge, conforms


def said(text: str | None, **more: Any) -> dict[str, Any]:
    return {"index": 0, "message": {"role": "assistant", "content": text, **more}}


async def judge(name: str, answer: Any, reference: Any, using: Tools | None = None, **request: Any) -> Verdict | None:
    request.setdefault("messages", [{"role": "user", "content": "Which?"}])
    sides = [said(side) if isinstance(side, str) else side for side in (answer, reference)]
    return await JUDGES[name](using or Tools())(Pair(request, sides[0], sides[1]))


def test_the_configuration_knows_every_judge() -> None:
    assert set(JUDGE_NAMES) == set(JUDGES)


@pytest.mark.parametrize(
    ("answer", "reference", "value"),
    [
        ("Paris.", " paris", 1.0),
        ("ＰＡＲＩＳ!", "paris", 1.0),
        ("London", "Paris", 0.0),
        ("", "Paris", 0.0),
        ("1,000", "1000", 1.0),
        ("3.14", "314", 0.0),
        ("-5", "5", 0.0),
        ("x" * 9000, "Paris", 0.0),
    ],
)
async def test_match(answer: str, reference: str, value: float) -> None:
    assert await judge("match", answer, reference) == Verdict(value, 1.0)


@pytest.mark.parametrize("name", ["match", "choice"])
@pytest.mark.parametrize(
    "reference", ["", "A long explanation, which may be put in so many words that none is the same."]
)
async def test_equal_texts_are_no_reason_to_speak(name: str, reference: str) -> None:
    assert await judge(name, reference, reference) is None
    assert await judge(name, "other", reference) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("So we get\n#### 1,234.50", "1234.5"),
        ("Therefore \\boxed{-7}.", "-7"),
        ("The answer is (B), because of A.", "B"),
        ("answer: **42**", "42"),
        ("Thinking of 3.\n\n7", "7"),
        ("(C)", "C"),
        ("-0.0\n-0.0", "0"),
        ("The answer is 5. No, the answer is 6.", "6"),
        ("I do not know", None),
        ("There are 12 apples left.", None),
        ("", None),
    ],
)
def test_final_answers(text: str, found: str | None) -> None:
    assert final(text) == found


async def test_choice() -> None:
    assert await judge("choice", "It is 3+4.\n#### 7.0", "Sum: 7\n#### 7") == Verdict(1.0, 1.0)
    assert await judge("choice", "no idea", "#### 7") == Verdict(0.0, 1.0)


@given(st.text(max_size=200))
def test_no_text_breaks_them(text: str) -> None:
    normalised(text)
    final(text)


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ({"n": 1}, True),
        ({"n": 1.0, "tags": ["a", "b"]}, True),
        ({"n": 1.5}, False),
        ({"n": True}, False),
        ({"n": -1}, False),
        ({}, False),
        ({"n": 1, "tags": ["c"]}, False),
        ({"n": 1, "more": 1}, False),
        ([], False),
    ],
)
def test_schema(value: Any, fits: bool) -> None:
    assert conforms(value, SCHEMA) is fits


@pytest.mark.parametrize(
    ("value", "schema", "fits"),
    [
        ("x", {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 1}]}, True),
        ("xy", {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 1}]}, False),
        (None, {"type": ["string", "null"]}, True),
        (3, {"const": 4}, False),
        ([1], {"minItems": 2}, False),
        (1, {"type": "unheard"}, True),
        (1, {"minimum": "x", "enum": "no list"}, True),
        (1, False, False),
        (1, "no schema", True),
    ],
)
def test_schema_keywords(value: Any, schema: Any, fits: bool) -> None:
    assert conforms(value, schema) is fits


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda i: st.lists(i) | st.dictionaries(st.sampled_from((*SCHEMA, "items", "enum", "anyOf", "const")), i),
    max_leaves=12,
)


@given(JSONS, JSONS)
def test_any_schema_gives_an_answer(value: Any, schema: Any) -> None:
    assert conforms(value, schema) in (True, False)


async def test_validity_of_json() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
    assert await judge("validity", '{"n": 1}', '{"n": "x"}', response_format=form) == Verdict(1.0, 0.0)
    assert await judge("validity", '{"n": 1', '{"n": 2}', response_format=form) == Verdict(0.0, 1.0)
    assert await judge("validity", "[]", "{}", response_format={"type": "json_object"}) == Verdict(0.0, 1.0)


def call(arguments: str, name: str = "add") -> dict[str, Any]:
    return said(None, tool_calls=[{"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}])


async def test_validity_of_tool_calls() -> None:
    tools = [{"type": "function", "function": {"name": "add", "parameters": SCHEMA}}]
    good = call('{"n": 1}')
    for answer, value in ((good, 1.0), (call("{"), 0.0), (call("{}"), 0.0), (call('{"n": 1}', "sub"), 0.0), ("3", 0.0)):
        assert await judge("validity", answer, good, tools=tools) == Verdict(value, 1.0)


async def test_validity_of_code() -> None:
    good, bad = "Here:\n```python\nprint(1)\n```", "Here:\n```python\nprint(1\n```"
    assert await judge("validity", bad, good) == Verdict(0.0, 1.0)
    assert await judge("validity", good, bad) == Verdict(1.0, 0.0)
    assert await judge("validity", "no code", good) == Verdict(0.0, 1.0)
    deep = "```python\n" + "(" * 5000 + ")" * 5000 + "\n```"
    assert await judge("validity", deep, good) == Verdict(0.0, 1.0)
    assert await judge("validity", good, "words") is None


async def test_embedding_is_the_cosine_in_whatever_order_rows_come() -> None:
    async def embed(path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        assert (path, body) == ("/v1/embeddings", {"model": "e", "input": ["a", "b"]})
        return {"data": [{"index": 1, "embedding": [0.0, 2.0]}, {"index": 0, "embedding": [3.0, 4.0]}]}

    tools = Tools(embed=embed, embedding_model="e")
    found = await judge("embedding", "a", "b", tools)
    assert found is not None
    assert abs(found.value - 0.8) < 1e-12
    assert await judge("embedding", "", "b", tools) == Verdict(0.0, 1.0)
    assert await judge("embedding", "a", "b") is None


@pytest.mark.parametrize(
    ("preference", "verdict"),
    [
        ("good", Verdict(1.0, 0.0)),
        ("first", Verdict(0.5, 0.5)),
        ("TIE", Verdict(0.5, 0.5)),
        ("I think A, not B", None),
    ],
)
async def test_the_llm_judge_is_asked_twice_so_that_places_cancel_out(preference: str, verdict: Verdict | None) -> None:
    asked: list[str] = []

    async def chat(path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        text = body["messages"][-1]["content"]
        asked.append(text)
        good_first = text.index("good answer") < text.index("bad answer")
        reply = {"good": "A" if good_first else "B", "first": "A"}.get(preference, preference)
        return {"choices": [{"message": {"content": reply}}]}

    tools = Tools(chat=chat, chat_model="m")
    assert await judge("llm", "good answer", "bad answer", tools) == verdict
    assert len(asked) == 2
    assert all("Which?" in text for text in asked)
    assert asked[0].index("good answer") < asked[0].index("bad answer")
    assert asked[1].index("bad answer") < asked[1].index("good answer")
    assert await judge("llm", "good answer", "bad answer") is None
    assert json.dumps(asked)


MANY = [{"const": n} for n in [*range(2, 15_000), 1]]


@pytest.mark.parametrize(
    "items",
    [
        {"anyOf": MANY},
        {"enum": [*range(2, 15_000), 1]},
        {"type": ["object"] * 15_000 + ["integer"]},
        {"anyOf": [{"anyOf": MANY[:150]}] * 150 + [{"const": 1}]},
    ],
)
async def test_no_schema_of_a_client_holds_up_the_worker(items: dict[str, Any]) -> None:
    schema = {"type": "array", "items": items}
    form = {"type": "json_schema", "json_schema": {"schema": {"anyOf": [schema] * 3}}}
    many = said(json.dumps([1] * 500))
    began = time.process_time()
    # Full precision's answer is looked at as well: nobody can tell.
    assert await judge("validity", many, many, response_format=form) is None
    assert time.process_time() - began < 3
    with pytest.raises(TooLarge):
        conforms([1] * 500, schema)

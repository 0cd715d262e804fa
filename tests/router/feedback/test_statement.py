"""What may be said of an answer; whatever is wrong is named by its field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.feedback.statement import Statement, read_statement
from router.proxy.errors import ApiError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("said", "source", "value"),
    [
        ({"thumbs": "up"}, "thumbs", 1.0),
        ({"thumbs": "down"}, "thumbs", 0.0),
        ({"score": 0.25}, "score", 0.25),
        ({"score": 1}, "score", 1.0),
        ({"metric": {"name": "tests_passed", "value": 0.5}}, "metric:tests_passed", 0.5),
        ({"metric": {"name": "ok", "value": True}}, "metric:ok", 1.0),
    ],
)
def test_the_three_ways_to_say_it(said: dict[str, Any], source: str, value: float) -> None:
    kind = source.partition(":")[0]
    assert read_statement({"request_id": "a-1", **said}, 3) == Statement("a-1", kind, source, value, None)


def test_a_comment_is_cut_and_may_be_kept_at_all() -> None:
    body = {"request_id": "a", "thumbs": "up", "comment": "wrong"}
    assert read_statement(body, 3).comment == "wro"
    assert read_statement(body, 0).comment is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"thumbs": "up"}, "request_id"),
        ({"request_id": 7, "thumbs": "up"}, "request_id"),
        ({"request_id": "a b", "thumbs": "up"}, "request_id"),
        ({"request_id": "x" * 129, "thumbs": "up"}, "request_id"),
        ({"request_id": "a"}, "thumbs"),
        ({"request_id": "a", "thumbs": "sideways"}, "thumbs"),
        ({"request_id": "a", "thumbs": ["up"]}, "thumbs"),
        ({"request_id": "a", "thumbs": "up", "score": 1}, "score"),
        ({"request_id": "a", "score": 1.01}, "score"),
        ({"request_id": "a", "score": -0.01}, "score"),
        ({"request_id": "a", "score": float("nan")}, "score"),
        ({"request_id": "a", "score": True}, "score"),
        ({"request_id": "a", "score": "1"}, "score"),
        ({"request_id": "a", "metric": "m"}, "metric"),
        ({"request_id": "a", "metric": {"value": 1}}, "metric.name"),
        ({"request_id": "a", "metric": {"name": "a b", "value": 1}}, "metric.name"),
        ({"request_id": "a", "metric": {"name": "m"}}, "metric.value"),
        ({"request_id": "a", "metric": {"name": "m", "value": 2}}, "metric.value"),
        ({"request_id": "a", "metric": {"name": "m", "value": 1, "unit": "s"}}, "metric.unit"),
        ({"request_id": "a", "thumbs": "up", "comment": 1}, "comment"),
        ({"request_id": "a", "thumbs": "up", "extra": 1}, "extra"),
    ],
)
def test_a_mistake_is_named_by_its_field(body: dict[str, Any], field: str) -> None:
    with pytest.raises(ApiError) as found:
        read_statement(body, 10)
    assert (found.value.status, found.value.param) == (400, field)


@given(st.dictionaries(st.sampled_from(("request_id", "thumbs", "score", "metric", "comment")), JSON))
def test_anything_is_a_statement_or_a_400(body: dict[str, Any]) -> None:
    try:
        found = read_statement(body, 10)
    except ApiError as error:
        status: int | None = error.status
    else:
        status = None
        assert 0.0 <= found.value <= 1.0
    assert status in (None, 400)

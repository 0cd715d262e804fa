"""Merge patches: the examples of RFC 7396, and what a made patch must do."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.control.merge import Change, changes, difference, merge

# RFC 7396, appendix A: the target, the patch, the result.
EXAMPLES = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]
SCALARS = st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b"]) | st.floats(0, 1)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
)
DOCUMENTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


@pytest.mark.parametrize(("target", "patch", "result"), EXAMPLES)
def test_the_standards_examples(target: Any, patch: Any, result: Any) -> None:
    before = copy.deepcopy(target)
    assert merge(target, patch) == result
    assert target == before


@given(DOCUMENTS, DOCUMENTS)
def test_a_made_patch_makes_what_was_wanted(base: dict[str, Any], wanted: dict[str, Any]) -> None:
    made = merge(base, difference(base, wanted))
    assert list(changes(made, wanted)) == []
    assert difference(wanted, wanted) == {}


@given(DOCUMENTS, DOCUMENTS)
def test_there_are_changes_exactly_where_there_is_a_patch(base: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert bool(list(changes(base, wanted))) == (difference(base, wanted) not in ({},)) or base.keys() != wanted.keys()


def test_null_is_kept_where_it_is_a_value() -> None:
    assert merge({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "c": None}}, lambda path: path == ("a", "b")) == {
        "a": {"b": None}
    }


def test_true_is_not_one_also_within_lists() -> None:
    assert list(changes({"a": [1, {"b": 0}]}, {"a": [1, {"b": False}]})) == [
        Change("a", [1, {"b": 0}], [1, {"b": False}])
    ]
    assert difference({"a": 1}, {"a": True}) == {"a": True}


def test_changes_name_their_place() -> None:
    assert list(changes({"a": {"b": 1}, "c": 2}, {"a": {"b": 3, "d": 4}})) == [
        Change("a.b", 1, 3),
        Change("a.d", None, 4),
        Change("c", 2, None),
    ]

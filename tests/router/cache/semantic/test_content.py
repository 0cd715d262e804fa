"""What the guard `content` keeps apart by itself, on the pairs by rule and the held-out ones, and what it leaves to the vector."""

from __future__ import annotations

import pytest

from router.cache.semantic.content import compatible, content
from tests.router.cache.semantic.held_out import NEAR_MISSES
from tests.router.cache.semantic.pairs import framed, near_misses


def passes(a: str, b: str) -> bool:
    one, other = content(a), content(b)
    return one is not None and other is not None and compatible(one, other)


def test_most_near_misses_fail_it_whatever_a_vector_says() -> None:
    rule = [(a, b) for _, a, b in near_misses()]
    assert sum(passes(*pair) for pair in rule) <= 5
    assert sum(passes(*pair) for pair in NEAR_MISSES) <= 26
    assert len(rule) == 309
    assert len(NEAR_MISSES) == 210


def test_politeness_passes() -> None:
    assert all(passes(*pair) for pair in framed())


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Explain a = b", "Explain a != b"),
        ("Is it 3 km away?", "Is it 4 km away?"),
        ("Who met Anna?", "Who met Berta?"),
        ("Is it legal?", "Is it illegal?"),
        ("Is it not safe?", "Is it safe?"),
        ("Fly from Rome to Oslo", "Fly from Oslo to Rome"),
        ("Is 5 kg much?", "Is 5 lb much?"),
    ],
)
def test_never(a: str, b: str) -> None:
    assert not passes(a, b)
    assert passes(a, a)

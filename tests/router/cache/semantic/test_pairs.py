"""Zero wrong hits on near misses; how many paraphrases are hit."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.cache.semantic.guard import core
from router.cache.semantic.vector import embed, likeness
from router.config.semantic import SemanticConfig
from tests.router.cache.semantic.pairs import FREE, framed, near_misses

THRESHOLD = SemanticConfig().threshold


def hit(a: str, b: str) -> bool:
    """As the cache decides, at the default threshold."""
    words = core(a)
    return words is not None and words == core(b) and likeness(embed(a), embed(b)) >= THRESHOLD


NEAR = near_misses()


def test_there_are_enough_near_misses_of_each_rule_in_both_languages() -> None:
    rules = Counter(rule for rule, _, _ in NEAR)
    assert len(NEAR) >= 200
    assert min(rules.values()) >= 10
    assert sum(not a.isascii() for _, a, _ in NEAR) >= 50
    assert all(a != b for _, a, b in NEAR)


def test_no_near_miss_is_a_hit() -> None:
    assert [(rule, a, b) for rule, a, b in NEAR if hit(a, b)] == []


@pytest.mark.parametrize("frame", ["Please {}", "{} Thanks!", "Could you please tell me {}", "请问{}", "{}呢"])
def test_nor_in_a_frame(frame: str) -> None:
    assert [(a, b) for _, a, b in NEAR if hit(a, frame.format(b))] == []


def test_paraphrases() -> None:
    """As the documentation states: every frame is seen through, and half of what people write freely."""
    pairs = framed()
    assert len(pairs) + len(FREE) >= 200
    rate = sum(hit(a, b) for a, b in pairs) / len(pairs)
    free = sum(hit(a, b) for a, b in FREE) / len(FREE)
    assert rate == 1.0
    assert 0.5 <= free < 0.6


WORDS = st.lists(
    st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=6), min_size=1, max_size=8
)


@given(WORDS, st.data())
def test_a_number_that_changes_is_never_overlooked(words: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(words)))
    a, b = data.draw(st.integers(0, 10**6)), data.draw(st.integers(0, 10**6))
    one, other = [" ".join([*words[:at], str(n), *words[at:]]) for n in (a, b)]
    assert a == b or core(one) is None or core(one) != core(other)


@given(st.text(max_size=60))
def test_any_text_is_taken(text: str) -> None:
    words = core(text)
    assert words is None or words == core(f"  {text} ")
    vector = embed(text)
    assert not vector or likeness(vector, vector) == pytest.approx(1.0)


@pytest.mark.parametrize("text", ["", "  ", "a\nb", "run `ls`", "x" * 2000])
def test_only_itself(text: str) -> None:
    assert core(text) is None


def test_politeness_alone_is_no_question() -> None:
    assert core("please") == ("please",)
    assert core("hi") != core("hello")

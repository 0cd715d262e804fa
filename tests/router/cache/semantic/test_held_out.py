"""What the guard does on pairs that it was not made with: no wrong hit, and as good as no hit."""

from __future__ import annotations

from router.cache.semantic.guard import core
from tests.router.cache.semantic.held_out import NEAR_MISSES, PARAPHRASES, ROWS


def passes(a: str, b: str) -> bool:
    words = core(a)
    return words is not None and words == core(b)


def test_enough_pairs() -> None:
    assert len(PARAPHRASES) >= 200
    assert len(NEAR_MISSES) >= 200
    assert len({text for row in ROWS for text in row}) == 4 * len(ROWS)


def test_no_near_miss_passes() -> None:
    assert [pair for pair in NEAR_MISSES if passes(*pair)] == []


def test_paraphrases_that_pass() -> None:
    """As the documentation states: whoever writes freely is hardly ever understood."""
    assert sum(passes(*pair) for pair in PARAPHRASES) == 1

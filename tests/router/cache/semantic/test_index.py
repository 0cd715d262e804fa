"""The index of vectors is bounded, forgets what is over, and only ever gives what the guard lets pass."""

from __future__ import annotations

from router.cache.semantic.index import MOST_COMPARED, Candidate, Index

X, Y, XY = (1.0, 0.0), (0.0, 1.0), (0.8, 0.6)


def candidate(entry: str, vector: tuple[float, ...] = X, until_ms: int = 100, words: tuple[int, ...] = ()) -> Candidate:
    return Candidate(entry, words, vector, until_ms)


def test_the_nearest_one_that_is_near_enough() -> None:
    index = Index(10)
    for entry, vector in (("x", X), ("y", Y), ("xy", XY)):
        index.add("b", candidate(entry, vector))
    found = index.nearest("b", (), X, 0.9, 0)
    assert found is not None
    assert found[1].entry == "x"
    other = index.nearest("b", (), X, 0.7, 0, but="x")
    assert other is not None
    assert (round(other[0], 6), other[1].entry) == (0.8, "xy")
    assert index.nearest("b", (), X, 0.81, 0, but="x") is None
    assert index.nearest("c", (), X, 0.0, 0) is None
    assert index.nearest("b", (), (1.0, 0.0, 0.0), 0.0, 0) is None


def test_words_in_another_order_are_another_question() -> None:
    index = Index(10)
    index.add("b", candidate("x", words=(1, 2, 3)))
    assert index.nearest("b", (1, 4, 3), X, 0.9, 0) is not None
    assert index.nearest("b", (3, 4, 1), X, 0.9, 0) is None


def test_what_is_over_is_forgotten() -> None:
    index = Index(10)
    index.add("b", candidate("x", until_ms=100))
    assert index.nearest("b", (), X, 0.9, 99) is not None
    assert index.nearest("b", (), X, 0.9, 100) is None
    assert len(index) == 0


def test_bounded_oldest_out() -> None:
    index = Index(3)
    for n in range(5):
        index.add(f"b{n % 2}", candidate(str(n)))
    assert len(index) == 3
    assert index.nearest("b1", (), X, 0.9, 0) is not None
    index.drop("b1", "3")
    assert index.nearest("b1", (), X, 0.9, 0) is None
    wide = Index(10 * MOST_COMPARED)
    for n in range(MOST_COMPARED + 5):
        wide.add("b", candidate(str(n)))
    assert len(wide) == MOST_COMPARED
    wide.add("b", candidate("7"))
    wide.add("b", candidate("7", Y))
    assert len(wide) == MOST_COMPARED
    found = wide.nearest("b", (), Y, 0.9, 0)
    assert found is not None
    assert found[1].entry == "7"

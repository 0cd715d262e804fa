"""Sliding sums against a model that remembers everything."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from router.state.windows import Window


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 100)), max_size=40), st.integers(0, 100), st.integers(1, 20)
)
def test_it_holds_what_was_added_within_its_buckets(steps: list[tuple[int, int]], rest: int, buckets: int) -> None:
    # One bucket a second: a value counts until its bucket is `buckets` seconds old.
    window = Window(float(buckets), buckets)
    now, added = 1000.0, []
    for pause, value in steps:
        now += pause
        window.add(now, value)
        added.append((now, value))
    now += rest
    alive = [value for at, value in added if now - at < buckets]
    assert window.total(now) == sum(alive)
    assert window.count(now) == len(alive)
    assert window.mean(now) == (sum(alive) / len(alive) if alive else None)


def test_a_clock_that_stands_or_steps_back_loses_nothing() -> None:
    window = Window(10.0)
    window.add(100.0, 1.0)
    window.add(99.0, 2.0)
    window.add(100.0, 3.0)
    assert window.total(100.0) == 6.0
    assert window.total(50.0) == 6.0


def test_its_length_is_what_was_asked() -> None:
    assert Window(60.0).seconds == 60.0

"""Rates over sliding windows against a plain sum over the events themselves."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from router.telemetry.rates import WINDOWS, Rates

EVENTS = st.lists(st.tuples(st.floats(0.0, 40.0), st.integers(0, 100)), max_size=30)


def fed(events: list[tuple[float, int]], start: float = 1000.0) -> tuple[Rates, list[tuple[float, int]], float]:
    rates, now, seen = Rates(), start, []
    for gap, tokens in events:
        now += gap
        rates.add(now, 1, tokens, 1, tokens % 2, tokens if tokens % 2 else 0)
        seen.append((now, tokens))
    return rates, seen, now


@given(EVENTS, st.floats(0.0, 400.0))
def test_a_window_is_what_came_in_it_to_the_second(events: list[tuple[float, int]], later: float) -> None:
    rates, seen, last = fed(events)
    now = last + later
    for seconds in WINDOWS.values():
        rate = rates.rate(now, seconds)
        second = int(now)
        whole = [(t, n) for t, n in seen if int(t) > second - seconds]
        partly = [(t, n) for t, n in seen if int(t) == second - seconds]
        share = 1.0 - (now - second)
        tokens = sum(n for _, n in whole) + share * sum(n for _, n in partly)
        assert math.isclose(rate.completion_tokens * seconds, tokens, abs_tol=1e-6)
        assert math.isclose(rate.requests * seconds, len(whole) + share * len(partly), abs_tol=1e-6)
        assert rate.goodput_requests <= rate.targeted_requests
        good = sum(n for _, n in whole if n % 2) + share * sum(n for _, n in partly if n % 2)
        assert math.isclose(rate.goodput_tokens * seconds, good, abs_tol=1e-6)


@given(EVENTS, EVENTS)
def test_two_workers_windows_add_up(one: list[tuple[float, int]], other: list[tuple[float, int]]) -> None:
    (a, _, last_a), (b, _, last_b) = fed(one), fed(other)
    both = Rates()
    for now, tokens in sorted(fed(one)[1] + fed(other)[1]):
        both.add(now, 1, tokens, 1, tokens % 2, tokens if tokens % 2 else 0)
    now = max(last_a, last_b)
    for seconds in WINDOWS.values():
        sums = [x + y for x, y in zip(a.rate(now, seconds), b.rate(now, seconds), strict=True)]
        for mine, theirs in zip(sums, both.rate(now, seconds), strict=True):
            assert math.isclose(mine, theirs, abs_tol=1e-6)


def test_it_rests_after_the_longest_window_and_wakes() -> None:
    rates = Rates()
    assert rates.idle(5.0)
    rates.add(5.0, 1, 1, 1, 1, 1)
    assert not rates.idle(305.9)
    assert rates.idle(306.0)
    assert rates.rate(306.0, 300).requests == 0.0
    rates.add(400.0, 1, 1, 1, 1, 1)
    assert rates.rate(400.5, 10).requests == 0.1


def test_a_clock_that_steps_back_a_little_loses_nothing() -> None:
    rates = Rates()
    rates.add(10.0, 1, 1, 1, 1, 1)
    rates.add(9.9, 1, 1, 1, 1, 1)
    assert rates.rate(10.0, 10).requests == 0.2
    assert rates.rate(9.5, 10).requests == 0.2

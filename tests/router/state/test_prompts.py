"""Prompt tokens under way: what waits, what comes per second, and what others send."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.state.prompts import MEMORY_S, Prompts

PER_TOKEN = 0.0001


def test_prompts_wait_behind_each_other_and_are_computed_as_time_passes() -> None:
    prompts = Prompts()
    assert prompts.send(10.0, 1000.0, PER_TOKEN) == 0.0
    assert prompts.send(10.0, 500.0, PER_TOKEN) == 1000.0
    assert prompts.backlog(10.05, PER_TOKEN) == pytest.approx(1000.0)
    assert prompts.send(10.1, 200.0, PER_TOKEN) == pytest.approx(500.0)
    assert prompts.backlog(20.0, PER_TOKEN) == 0.0


def test_where_a_token_takes_no_time_nothing_waits() -> None:
    prompts = Prompts()
    prompts.send(1.0, 1000.0, 0.0)
    assert prompts.backlog(1.0, 0.0) == 0.0


def test_the_rate_is_that_of_the_last_seconds() -> None:
    prompts = Prompts()
    for i in range(400):
        prompts.send(i * 0.1, 50.0, PER_TOKEN)
    assert prompts.rate(39.9) == pytest.approx(500.0, rel=0.02)
    assert prompts.rate(39.9 + MEMORY_S) == pytest.approx(500.0 / math.e, rel=0.02)
    assert prompts.rate(139.9) < 1e-3


def test_what_others_send_is_seen_in_the_servers_counter() -> None:
    prompts = Prompts()
    begun = prompts.mark(0.0)
    for second in range(60):
        prompts.send(float(second), 100.0, PER_TOKEN)
        prompts.count(second + 0.5, 1000.0 * (second + 0.5))
    assert prompts.rate(60.0) == pytest.approx(1000.0, rel=0.02)
    assert prompts.since(begun, 60.0) == pytest.approx(60_000.0, rel=0.02)
    # Theirs wait between one's own: about ten tokens for each one sent from here.
    ahead = prompts.backlog(60.0, PER_TOKEN)
    prompts.send(60.0, 100.0, PER_TOKEN)
    assert prompts.backlog(60.0, PER_TOKEN) - ahead == pytest.approx(1000.0, rel=0.2)


def test_ones_own_prompts_are_not_counted_twice() -> None:
    prompts = Prompts()
    begun = prompts.mark(0.0)
    for second in range(60):
        prompts.send(float(second), 100.0, PER_TOKEN)
        prompts.count(second + 0.5, 100.0 * (second + 1))
    assert prompts.rate(59.5) == pytest.approx(100.0, rel=0.15)
    assert prompts.since(begun, 59.5) == pytest.approx(6000.0, rel=0.05)


def test_a_server_that_began_anew_counts_from_zero() -> None:
    prompts = Prompts()
    prompts.count(0.0, 1e9)
    prompts.count(1.0, 1e9 + 500.0)
    prompts.count(2.0, 300.0)
    assert 0.0 < prompts.rate(2.0) < 500.0


def test_a_server_that_fell_silent_is_not_taken_to_go_on_for_ever() -> None:
    prompts = Prompts()
    for second in range(60):
        prompts.count(float(second), 1000.0 * second)
    mark = prompts.mark(59.0)
    assert prompts.since(mark, 60.0) == pytest.approx(1000.0, rel=0.02)
    assert prompts.since(mark, 1000.0) == pytest.approx(MEMORY_S * 1000.0, rel=0.02)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("send", "count")), st.floats(0, 100), st.floats(0, 1e6), st.floats(0, 1, exclude_min=True)
        ),
        max_size=30,
    )
)
def test_nothing_is_negative_or_without_bound_whatever_comes(steps: list[tuple[str, float, float, float]]) -> None:
    prompts, now = Prompts(), 0.0
    marks = [prompts.mark(now)]
    for what, passed, tokens, per_token in steps:
        now += passed
        if what == "send":
            before = prompts.backlog(now, per_token)
            assert prompts.send(now, tokens, per_token) == before
            assert prompts.backlog(now, per_token) >= before
        else:
            prompts.count(now, tokens)
        marks.append(prompts.mark(now))
        figures = [prompts.backlog(now, per_token), prompts.rate(now), *(prompts.since(m, now) for m in marks)]
        assert all(math.isfinite(f) and f >= 0.0 for f in figures)

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


def test_a_backlog_does_not_outlive_the_requests_that_it_is_made_of() -> None:
    prompts, much = Prompts(), 1.0
    marks = []
    for second in range(100):
        ahead = prompts.send(float(second), 1000.0, much)
        marks.append(prompts.mark(float(second), ahead + 1000.0))
        if second >= 3:
            # Answered after three seconds, whatever a token was taken to last.
            prompts.computed(float(second), marks[second - 3], much)
    assert prompts.backlog(99.0, much) == pytest.approx(3000.0)
    prompts.computed(100.0, marks[-1], much)
    assert prompts.backlog(100.0, much) == 0.0
    assert prompts.rate(100.0) == pytest.approx(1000.0, rel=0.15)


def test_what_is_not_computed_after_all_was_never_there() -> None:
    prompts = Prompts()
    prompts.send(1.0, 100.0, PER_TOKEN)
    begun = prompts.mark(1.0)
    for step in range(10):
        prompts.send(1.0 + step, 500_000.0, PER_TOKEN)
        prompts.take_back(1.1 + step, 500_000.0, 1.0 + step, PER_TOKEN)
    assert prompts.backlog(10.2, PER_TOKEN) == 0.0
    assert prompts.rate(10.2) < 100.0
    assert prompts.since(begun, 10.2) == 0.0
    prompts.send(10.2, 700.0, PER_TOKEN)
    prompts.send(10.2, 500_000.0, PER_TOKEN)
    prompts.take_back(10.2, 500_000.0, 10.2, PER_TOKEN)
    assert prompts.backlog(10.2, PER_TOKEN) == pytest.approx(700.0)


def test_ones_own_prompt_is_none_that_came_meanwhile_though_it_is_counted_later() -> None:
    prompts, counter = Prompts(), 0.0
    for step in range(20):
        now = 10.0 * step
        prompts.count(now, counter)
        ahead = prompts.send(now, 4000.0, PER_TOKEN)
        mark = prompts.mark(now, ahead + 4000.0)
        counter += 4000.0
        prompts.count(now + 1.0, counter)
        assert prompts.since(mark, now + 1.0) < 0.3 * 4000.0
    # What others send is none of it.
    prompts.count(192.0, counter + 9000.0)
    assert prompts.since(mark, 192.0) > 0.7 * 9000.0


def test_a_counter_that_cannot_be_read_any_more_is_forgotten() -> None:
    prompts = Prompts()
    for second in range(60):
        prompts.count(float(second), 1000.0 * second)
    assert prompts.rate(59.0 + MEMORY_S) == pytest.approx(1000.0, rel=0.02)
    assert prompts.rate(200.0) < 1.0


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_a_counter_that_is_no_number_is_left_out(odd: float) -> None:
    prompts = Prompts()
    for second in range(60):
        prompts.count(float(second), 1000.0 * second)
        prompts.count(second + 0.5, odd)
    assert prompts.rate(59.5) == pytest.approx(1000.0, rel=0.02)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("send", "count", "computed", "take_back")),
            st.floats(0, 100),
            st.floats(0, 1e6),
            st.floats(0, 1, exclude_min=True),
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
        elif what == "computed":
            prompts.computed(now, marks[int(tokens) % len(marks)], per_token)
        elif what == "take_back":
            prompts.take_back(now, tokens, now - passed, per_token)
        else:
            prompts.count(now, tokens)
        marks.append(prompts.mark(now))
        figures = [prompts.backlog(now, per_token), prompts.rate(now), *(prompts.since(m, now) for m in marks)]
        assert all(math.isfinite(f) and f >= 0.0 for f in figures)

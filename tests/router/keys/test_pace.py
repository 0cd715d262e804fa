"""The bucket of one limit: it never fills by time that runs back, and nothing spent is lost between workers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.keys.pace import Usage

ANY = settings(max_examples=60, deadline=None)
LIMIT = 600.0
RATE, MOST = Usage.bucket(LIMIT)
amounts = st.integers(-500, 2_000).map(float)


class Ledger:
    """What Redis keeps of one limit, as its script reckons."""

    def __init__(self) -> None:
        self.level, self.at = MOST, 0.0

    def spend(self, told: float, now: float) -> float:
        self.level = min(MOST, min(MOST, self.level + (now - self.at) * RATE) - told)
        self.at = now
        return self.level


@ANY
@given(st.lists(st.tuples(st.floats(0, 1e6), amounts), max_size=30))
def test_it_is_never_fuller_than_a_burst_and_a_clock_that_stands_or_runs_back_adds_nothing(
    steps: list[tuple[float, float]],
) -> None:
    usage, latest, before = Usage(), 0.0, MOST
    for now, amount in steps:
        level = usage.level(LIMIT, now)
        assert level <= MOST
        assert level == pytest.approx(min(MOST, before + max(0.0, now - latest) * RATE), abs=1e-3)
        latest = max(latest, now)
        usage.spend(amount)
        before = level - amount


@ANY
@given(st.floats(0, 1e5), st.floats(0, 1e5), st.floats(-100, 1))
def test_whoever_waits_as_long_as_it_says_need_wait_no_longer(now: float, debt: float, least: float) -> None:
    usage = Usage()
    usage.level(LIMIT, now)
    usage.spend(debt)
    wait_s = usage.wait_s(LIMIT, least, now)
    assert wait_s >= 0
    if wait_s > 1:
        assert usage.wait_s(LIMIT, least, now + wait_s - 0.5) == pytest.approx(0.5, abs=1e-3)
    assert usage.wait_s(LIMIT, least, now + wait_s) == pytest.approx(0, abs=1e-6)


@ANY
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.floats(0, 2), st.floats(0, 500), st.floats(0, 400), st.booleans()), max_size=40
    )
)
def test_what_all_workers_spend_is_what_is_taken_off_whenever_they_tell(
    steps: list[tuple[int, float, float, float, bool]],
) -> None:
    ledger, now, spent = Ledger(), 0.0, 1e5
    workers = [Usage() for _ in range(3)]
    # So deep in debt that the bucket is never full meanwhile, and nothing that comes in is lost.
    ledger.spend(1e5, now)
    for number, passes, amount, less, tells in steps:
        now += passes
        usage = workers[number]
        usage.level(LIMIT, now)
        usage.spend(amount)
        spent += amount
        if tells:
            told = usage.spent
            answer = ledger.spend(told, now)
            # While the answer is on its way something is given back.
            usage.spend(-less)
            spent -= less
            usage.heard(answer, told, now)
            assert usage.spent == pytest.approx(-less)
            assert usage.level(LIMIT, now) == pytest.approx(min(MOST, answer + less))
    for _ in range(2):
        for usage in workers:
            told = usage.spent
            usage.heard(ledger.spend(told, now), told, now)
    assert ledger.level == pytest.approx(MOST + now * RATE - spent, abs=1e-3)
    assert [u.level(LIMIT, now) for u in workers] == pytest.approx([ledger.level] * 3, abs=1e-3)


@ANY
@given(st.lists(st.tuples(st.floats(0, 5), st.booleans()), min_size=20, max_size=80), st.floats(1, 3_000))
def test_over_time_two_workers_let_no_more_through_than_the_limit(steps: list[tuple[float, bool]], each: float) -> None:
    """Requests as soon as a worker's own view allows; each tells what it let through, and hears of the other then."""
    ledger, now, passed = Ledger(), 0.0, 0.0
    workers = [Usage(), Usage()]
    for passes, first in steps:
        now += passes
        usage = workers[0 if first else 1]
        if usage.wait_s(LIMIT, 0.0, now) == 0.0:
            usage.spend(each)
            passed += each
            told = usage.spent
            usage.heard(ledger.spend(told, now), told, now)
    # One burst, and one request for each worker: what is owed at the end.
    assert passed <= now * RATE + MOST + 2 * each + 1e-3


def test_what_cannot_be_told_is_forgotten_as_it_comes_back() -> None:
    usage = Usage()
    usage.level(LIMIT, 0.0)
    usage.spend(1_000.0)
    # Half of it comes back here: the other worker's half was not spent by this one.
    usage.forgive(LIMIT, LIMIT / 2, 0.0)
    assert usage.spent == 1_000.0
    usage.forgive(LIMIT, LIMIT / 2, 60.0)
    assert usage.spent == pytest.approx(700.0)
    # Given back is nothing that others would be owed.
    usage.spend(-1_000.0)
    usage.forgive(LIMIT, LIMIT / 2, 60.0)
    assert usage.spent == pytest.approx(-300.0)

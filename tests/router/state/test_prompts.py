"""Prompt tokens under way: what waits, what comes per second, and what others send."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.state.prompts import BEGINNING, MEMORY_S, Prompts

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
        prompts.count(second + 0.5, 1000.0 * (second + 0.5), PER_TOKEN, 0.0)
    assert prompts.rate(60.0) == pytest.approx(1000.0, rel=0.02)
    assert prompts.since(begun, 60.0) == pytest.approx(60_000.0, rel=0.02)
    # Theirs come between one's own, not with it.
    ahead = prompts.backlog(60.0, PER_TOKEN)
    prompts.send(60.0, 100.0, PER_TOKEN)
    assert prompts.backlog(60.0, PER_TOKEN) == pytest.approx(ahead + 100.0)


def test_ones_own_prompts_are_not_counted_twice() -> None:
    prompts = Prompts()
    begun = prompts.mark(0.0)
    for second in range(60):
        prompts.send(float(second), 100.0, PER_TOKEN)
        prompts.count(second + 0.5, 100.0 * (second + 1), PER_TOKEN, 0.0)
    assert prompts.rate(59.5) == pytest.approx(100.0, rel=0.15)
    assert prompts.since(begun, 59.5) == pytest.approx(6000.0, rel=0.05)


def test_a_server_that_began_anew_counts_from_zero() -> None:
    prompts = Prompts()
    prompts.count(0.0, 1e9, PER_TOKEN, 0.0)
    prompts.count(1.0, 1e9 + 500.0, PER_TOKEN, 0.0)
    prompts.count(2.0, 300.0, PER_TOKEN, 0.0)
    assert 0.0 < prompts.rate(2.0) < 500.0


def test_a_server_that_fell_silent_is_not_taken_to_go_on_for_ever() -> None:
    prompts = Prompts()
    for second in range(60):
        prompts.count(float(second), 1000.0 * second, PER_TOKEN, 0.0)
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
            prompts.computed(float(second), 1000.0, marks[second - 3], much)
    assert prompts.backlog(99.0, much) == pytest.approx(3000.0)
    prompts.computed(100.0, 1000.0, marks[-1], much)
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
        prompts.count(now, counter, PER_TOKEN, 0.0)
        ahead = prompts.send(now, 4000.0, PER_TOKEN)
        mark = prompts.mark(now, ahead + 4000.0)
        counter += 4000.0
        prompts.count(now + 1.0, counter, PER_TOKEN, 0.0)
        assert prompts.since(mark, now + 1.0) < 0.3 * 4000.0
    # What others send is none of it.
    prompts.count(192.0, counter + 9000.0, PER_TOKEN, 0.0)
    assert prompts.since(mark, 192.0) > 0.7 * 9000.0


def test_a_counter_that_cannot_be_read_any_more_is_forgotten() -> None:
    prompts = Prompts()
    for second in range(60):
        prompts.count(float(second), 1000.0 * second, PER_TOKEN, 0.0)
    assert prompts.rate(59.0 + MEMORY_S) == pytest.approx(1000.0, rel=0.02)
    assert prompts.rate(200.0) < 1.0


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_a_counter_that_is_no_number_is_left_out(odd: float) -> None:
    prompts = Prompts()
    for second in range(60):
        prompts.count(float(second), 1000.0 * second, PER_TOKEN, 0.0)
        prompts.count(second + 0.5, odd, PER_TOKEN, 0.0)
    assert prompts.rate(59.5) == pytest.approx(1000.0, rel=0.02)


class Shared:
    """One server that computes prompts in the order they come, and the workers that share it; all in virtual time.

    Each worker knows what it sends itself, and reads the server's counter and queue once a second.
    """

    def __init__(self, workers: int) -> None:
        self.views = [Prompts() for _ in range(workers)]
        self.differences: list[float] = []
        self.waits: list[float] = []

    def run(self, utilisation: float, requests: int) -> float:
        """Let Poisson arrivals of prompts that are alike come; return the mean wait by Pollaczek and Khinchine, seconds."""
        rng, tokens, answer_s = random.Random(1), 1000.0, 3.0
        service = tokens * PER_TOKEN
        rate = utilisation / service
        starts, ends = deque[float](), deque[float]()
        free, computed, came = 0.0, 0.0, 0
        events = [(rng.random(), i, "read", (i, BEGINNING)) for i in range(len(self.views))]
        heapq.heappush(events, (0.0, len(events), "come", (0, BEGINNING)))
        order = itertools.count(len(events))
        while came < requests:
            now, _, what, (worker, mark) = heapq.heappop(events)
            view = self.views[worker]
            if what == "read":
                while ends and ends[0] <= now:
                    computed += tokens
                    ends.popleft()
                while starts and starts[0] <= now:
                    starts.popleft()
                view.count(now, computed, PER_TOKEN, float(len(starts)))
                heapq.heappush(events, (now + 1.0, next(order), "read", (worker, BEGINNING)))
            elif what == "end":
                view.computed(now, tokens, mark, PER_TOKEN)
            else:
                came += 1
                worker = rng.randrange(len(self.views))
                begun = max(now, free)
                free = begun + service
                starts.append(begun)
                ends.append(free)
                ahead = self.views[worker].send(now, tokens, PER_TOKEN)
                if came > requests // 5:
                    self.waits.append(begun - now)
                    self.differences.append(ahead * PER_TOKEN - (begun - now))
                mark = self.views[worker].mark(now, ahead + tokens)
                heapq.heappush(events, (free + answer_s, next(order), "end", (worker, mark)))
                heapq.heappush(events, (now + rng.expovariate(rate), next(order), "come", (0, BEGINNING)))
        return utilisation * service / (2.0 * (1.0 - utilisation)) if utilisation < 1.0 else math.inf


@pytest.mark.parametrize("utilisation", [0.3, 0.6, 0.9])
def test_one_workers_wait_is_foretold_exactly(utilisation: float) -> None:
    shared = Shared(1)
    shared.run(utilisation, 4000)
    assert fmean(map(abs, shared.differences)) < 0.003


@pytest.mark.parametrize("utilisation", [0.3, 0.6])
@pytest.mark.parametrize("workers", [2, 8])
def test_where_workers_share_a_server_the_wait_foretold_is_the_true_one_on_average(
    workers: int, utilisation: float
) -> None:
    shared = Shared(workers)
    expected = shared.run(utilisation, 8000)
    true = fmean(shared.waits)
    assert true == pytest.approx(expected, rel=0.15)
    assert fmean(shared.differences) == pytest.approx(0.0, abs=0.2 * true)
    # Nor is it further off than the mean itself, foretold to everybody, would be.
    assert fmean(map(abs, shared.differences)) <= 1.05 * fmean(abs(wait - true) for wait in shared.waits)


@pytest.mark.parametrize("workers", [2, 8])
def test_near_saturation_the_queue_that_the_server_tells_of_is_believed(workers: int) -> None:
    shared = Shared(workers)
    shared.run(0.9, 8000)
    true = fmean(shared.waits)
    assert fmean(shared.differences) == pytest.approx(0.0, abs=0.25 * true)
    assert fmean(map(abs, shared.differences)) < 0.5 * fmean(abs(wait - true) for wait in shared.waits)


@pytest.mark.parametrize("workers", [1, 8])
def test_under_overload_the_wait_foretold_grows_as_the_queue_does(workers: int) -> None:
    shared = Shared(workers)
    shared.run(1.2, 1000)
    assert max(shared.waits) > 10.0
    assert fmean(shared.differences) == pytest.approx(0.0, abs=0.1 * fmean(shared.waits))


def shared_with(others: float) -> Prompts:
    """Return what a worker knows that sent 4,000 tokens/s for a minute, where others sent so many; the last reading is at 59."""
    prompts = Prompts()
    for quarter in range(240):
        now = quarter / 4
        prompts.send(now, 1000.0, PER_TOKEN)
        prompts.computed(now, 1000.0, prompts.mark(now), PER_TOKEN)
        if quarter % 4 == 0:
            prompts.count(now, (4000.0 + others) * now, PER_TOKEN, 0.0)
    return prompts


def test_ones_own_prompts_are_computed_at_the_rate_that_others_leave() -> None:
    alone, shared = shared_with(0.0), shared_with(4000.0)
    before = shared.backlog(60.0, PER_TOKEN)
    for prompts in (alone, shared):
        prompts.send(60.0, 4000.0, PER_TOKEN)
    assert alone.backlog(60.3, PER_TOKEN) == pytest.approx(4000.0 - 3000.0, abs=300.0)
    assert shared.backlog(60.3, PER_TOKEN) == pytest.approx(4000.0 + before - 1800.0, abs=400.0)


def test_of_a_server_that_is_asked_for_too_much_each_gets_its_share() -> None:
    prompts = shared_with(4000.0)
    prompts.send(60.0, 20_000.0, PER_TOKEN)
    # 8,000 tokens/s of one's own lately and 4,000 of others, where 10,000 are computed.
    assert prompts.backlog(60.5, PER_TOKEN) == pytest.approx(20_000.0 - 0.65 * 5000.0, rel=0.08)


def test_others_mean_backlog_is_that_of_the_whole_load() -> None:
    prompts = shared_with(4000.0)
    for quarter in range(240, 252):
        prompts.send(quarter / 4, 1000.0, PER_TOKEN)
    # 0.4 of the server's time for others, 0.8 in all, and prompts of 1,000: 0.4 * 500 / (1 - 0.8) tokens.
    assert prompts.backlog(62.99, PER_TOKEN) == pytest.approx(1000.0, rel=0.25)


def test_others_backlog_does_not_outlive_a_prompt_that_came_after_it() -> None:
    prompts = shared_with(4000.0)
    prompts.count(59.8, 8000.0 * 59.8, PER_TOKEN, 50.0)
    assert prompts.backlog(59.8, PER_TOKEN) > 40_000.0
    prompts.computed(60.0, 1000.0, prompts.mark(59.8), PER_TOKEN)
    assert prompts.backlog(60.0, PER_TOKEN) == pytest.approx(0.2 * 4000.0, rel=0.3)


def test_others_queue_of_a_server_that_fell_silent_is_forgotten() -> None:
    prompts = Prompts()
    for second in range(60):
        prompts.send(float(second), 1000.0, PER_TOKEN)
        prompts.computed(second + 0.5, 1000.0, prompts.mark(float(second)), PER_TOKEN)
        prompts.count(second + 0.6, 8000.0 * second, PER_TOKEN, 50.0)
    assert prompts.backlog(59.6, PER_TOKEN) > 40_000.0
    assert prompts.backlog(200.0, PER_TOKEN) < 100.0


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("send", "count", "computed", "take_back")),
            st.floats(0, 100),
            st.floats(0, 1e6),
            st.floats(0, 1),
            st.floats(0, 1e4),
        ),
        max_size=30,
    )
)
def test_nothing_is_negative_or_without_bound_whatever_comes(
    steps: list[tuple[str, float, float, float, float]],
) -> None:
    prompts, now = Prompts(), 0.0
    marks = [prompts.mark(now)]
    for what, passed, tokens, per_token, waiting in steps:
        now += passed
        if what == "send":
            before = prompts.backlog(now, per_token)
            ahead = prompts.send(now, tokens, per_token)
            # Where a token takes no time nothing counts as waiting.
            assert ahead == before or not per_token
            assert prompts.backlog(now, per_token) >= before
        elif what == "computed":
            prompts.computed(now, tokens, marks[int(tokens) % len(marks)], per_token)
        elif what == "take_back":
            prompts.take_back(now, tokens, now - passed, per_token)
        else:
            prompts.count(now, tokens, per_token, waiting)
        marks.append(prompts.mark(now))
        figures = [prompts.backlog(now, per_token), prompts.rate(now), *(prompts.since(m, now) for m in marks)]
        assert all(math.isfinite(f) and f >= 0.0 for f in figures)

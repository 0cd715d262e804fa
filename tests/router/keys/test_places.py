"""One key's claim in a worker, by what it was answered."""

from __future__ import annotations

import pytest

from router.keys.pace import Pace
from router.keys.places import HOLD_S, Claim, Heard, Told

LIMIT = 100


@pytest.fixture
def pace() -> Pace:
    pace = Pace(2)
    pace.shared = True
    return pace


def heard(claim: Claim, pace: Pace, now: float, granted: int = 0, spare: int = 0, rest: int = 0, **more: bool) -> bool:
    answer = Heard(granted, spare, rest, more.get("wanted", False))
    return claim.heard(claim.tell(pace, now), answer, now, now)


def entered(claim: Claim, pace: Pace, now: float, most: int = 200) -> int:
    return sum(claim.take(LIMIT, pace, now) for _ in range(most))


def test_without_an_answer_there_is_no_place(pace: Pace) -> None:
    assert entered(Claim(), pace, 0.0) == 0


def test_spare_places_are_used_until_they_lapse(pace: Pace) -> None:
    claim = Claim()
    heard(claim, pace, 10.0, spare=5, rest=2)
    assert entered(claim, pace, 10.0 + HOLD_S - 0.01) == 5
    claim.give(10.5)
    assert entered(claim, pace, 10.5) == 1
    claim.give(10.5)
    assert entered(claim, pace, 10.0 + HOLD_S) == 0


def test_while_the_answer_is_on_its_way_it_holds_what_it_told(pace: Pace) -> None:
    claim = Claim()
    heard(claim, pace, 10.0, spare=30, rest=60)
    assert entered(claim, pace, 10.0, 4) == 4
    # A share of what was free; less than it held.
    assert claim.tell(pace, 10.1) == Told(4, 20, 0, LIMIT)
    assert entered(claim, pace, 10.1) == 20
    # Lapsed: it keeps nothing.
    assert claim.tell(pace, 10.0 + HOLD_S) == Told(24, 0, 0, LIMIT)
    assert entered(claim, pace, 10.0 + HOLD_S - 0.01) == 0


@pytest.mark.parametrize(("rest", "wanted", "reused"), [(0, False, 1), (0, True, 0), (-1, False, 0)])
def test_a_place_that_is_left_is_taken_again_unless_others_wait_or_there_are_too_many(
    pace: Pace, rest: int, wanted: bool, reused: int
) -> None:
    claim = Claim()
    heard(claim, pace, 10.0, spare=3, rest=9)
    assert entered(claim, pace, 10.0) == 3
    heard(claim, pace, 10.1, rest=rest, wanted=wanted)
    claim.give(10.2)
    assert entered(claim, pace, 10.2) == reused


def test_others_that_wait_get_its_spare_places_and_are_told_so(pace: Pace) -> None:
    claim = Claim()
    assert heard(claim, pace, 10.0, spare=5, rest=5, wanted=True)
    assert entered(claim, pace, 10.0) == 0
    assert not heard(claim, pace, 10.0, spare=5, rest=5)


def test_one_request_enters_early_where_plenty_was_free(pace: Pace) -> None:
    plenty, few = Claim(), Claim()
    heard(plenty, pace, 10.0, rest=3)
    heard(few, pace, 10.0, rest=2)
    assert entered(plenty, pace, 50.0) == 1
    assert entered(few, pace, 50.0) == 0
    heard(plenty, pace, 50.0, rest=3)
    # Heard of just now: whatever it holds is all.
    assert entered(plenty, pace, 50.5) == 0
    small = Claim()
    heard(small, pace, 10.0, rest=4)
    assert not small.take(4, pace, 50.0)


def test_by_its_own_count_it_claims_nothing_beside_what_it_runs(pace: Pace) -> None:
    claim = Claim()
    heard(claim, pace, 10.0, spare=60, rest=60)
    assert entered(claim, pace, 10.0, 4) == 4
    pace.settled_at = 20.0
    assert entered(claim, pace, 10.1) == 46
    assert claim.tell(pace, 10.2) == Told(50, 0, 0, 0)
    claim.heard(Told(50, 0, 0, 0), Heard(0, 0, -50, False), 10.2, 10.2)
    claim.give(20.0)
    assert entered(claim, pace, 20.0) == 0

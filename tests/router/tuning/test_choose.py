"""What is chosen among candidates: the bound, the step, hysteresis, and where the search goes on."""

from __future__ import annotations

import pytest

from router.config.loop import TuningConfig
from router.tuning.choose import Candidate, choose, leading
from router.tuning.estimators import DECIDES, Estimate

SETTINGS = TuningConfig(max_step=0.3)


def candidate(
    share: float, gain: float, *, lower: float = -0.001, sure: float = 0.002, moved: float = 0.1
) -> Candidate:
    """A candidate whose gain is known to within `sure`."""
    return Candidate(
        {"int8": share},
        (share,),
        {"int8": share},
        {DECIDES: Estimate(lower + 0.001, lower, lower + 0.002, 100)},
        100.0 * (1.0 + gain),
        (gain, gain - sure, gain + sure),
        0.9,
        0.9,
        0.1,
        1.0,
        moved,
    )


CURRENT = candidate(0.2, 0.0, moved=0.0)


@pytest.mark.parametrize(
    ("gain", "sure", "action"),
    [
        (0.03, 0.029, "change"),
        # Perhaps nothing.
        (0.03, 0.031, "keep"),
        # Small, but certain.
        (0.015, 0.004, "change"),
        (0.015, 0.006, "keep"),
        (0.009, 0.0, "keep"),
    ],
)
def test_a_change_must_be_worth_it(gain: float, sure: float, action: str) -> None:
    other = candidate(0.3, gain, sure=sure)
    choice = choose([CURRENT, other], 1.0, SETTINGS)
    assert choice.action == action
    assert choice.chosen is (other if action == "change" else CURRENT)


def test_what_breaks_the_bound_or_lies_too_far_is_neither_chosen_nor_searched_around() -> None:
    worse = candidate(0.4, 0.2, lower=-0.0101)
    far = candidate(0.9, 0.3, moved=0.31)
    good = candidate(0.3, 0.05)
    choice = choose([CURRENT, worse, far, good], 1.0, SETTINGS)
    assert (choice.action, choice.chosen) == ("change", good)
    assert leading([CURRENT, worse, far, good], 1.0, SETTINGS) is good


def test_the_search_goes_on_around_what_is_not_yet_worth_a_change() -> None:
    little = candidate(0.25, 0.004)
    assert choose([CURRENT, little], 1.0, SETTINGS).action == "keep"
    assert leading([CURRENT, little], 1.0, SETTINGS) is little


def test_where_the_present_is_not_safe_the_search_follows_the_repair() -> None:
    broken = candidate(0.5, 0.0, lower=-0.02, moved=0.0)
    less, more = candidate(0.3, -0.05), candidate(0.6, 0.1)
    assert choose([broken, less, more], 1.0, SETTINGS).chosen is less
    assert leading([broken, less, more], 1.0, SETTINGS) is less

"""A job's own arithmetic: what blocks of time say of other traffic, and the choices of requests that are not replayed."""

from __future__ import annotations

import random

import pytest

from benchmarks.tuning.world import FACTS, World, record, traffic
from router.tuning.analysis import Quality, all_choices, between
from router.tuning.estimators import DECIDES
from router.tuning.evidence import gather
from router.tuning.records import Record


@pytest.mark.parametrize(
    ("sums", "weights", "variance"),
    [
        # Two blocks with means 0 and 2: the variance of their mean is 2 / 2.
        ([0.0, 2.0], [1.0, 1.0], 1.0),
        ([3.0, 3.0, 3.0], [2.0, 2.0, 2.0], 0.0),
        # A block of half the size with the same mean differs by nothing, and an empty one does not count.
        ([4.0, 2.0, 0.0], [2.0, 1.0, 0.0], 0.0),
        ([0.0, 2.0, 0.0], [1.0, 1.0, 0.0], 1.0),
        ([5.0], [1.0], 0.0),
    ],
)
def test_blocks_tell_how_exact_a_mean_is(sums: list[float], weights: list[float], variance: float) -> None:
    assert between(sums, weights) == pytest.approx(variance)


def test_what_is_not_replayed_is_chosen_by_turns_as_its_like() -> None:
    requests = [traffic(World(), 1, random.Random(1))[0] for _ in range(6)]
    requests[3] = requests[3]._replace(usable=(1,))
    # The sides of all six; the last two were replayed and went to 2 and 0.
    assert all_choices(requests, [2, 0], [0, 0, 1, 0, 0, 1]) == [2, 2, 0, 1, 2, 0]
    # Nothing of its side was replayed: as all of them, by turns.
    assert all_choices(requests[:5], [2, 0], [1, 1, 1, 0, 0])[:3] == [2, 0, 2]
    assert all_choices(requests[:2], [1, 2], [0, 0]) == [1, 2]


def half_width(records: list[Record]) -> float:
    quality = Quality(records, gather(records, FACTS.reference, 0.2), FACTS, 0.95)
    # Whoever is easy goes down: how many are differs from block to block where the traffic does.
    found = quality.value([2 if r.risks[2] < 0.2 else 0 for r in quality.requests])[DECIDES]
    return (found.upper - found.lower) / 2


def test_traffic_that_changes_makes_all_less_sure_of_what_comes() -> None:
    rng = random.Random(2)
    world = World(shadow=0.8, explore=0.2)
    records = record(world, traffic(world, 1500, rng), {"int8": 0.2, "int4": 0.2}, rng)
    ordered = sorted(records, key=lambda r: r.risks["int4"])
    starts = sorted(r.at - r.e2e_s for r in records)
    # The same requests, but easy ones first.
    sorted_by_risk = [r._replace(at=start + r.e2e_s) for r, start in zip(ordered, starts, strict=True)]
    assert half_width(sorted_by_risk) > half_width(records) + 0.001

"""Sampling keeps sums unbiased and the rate bounded."""

from __future__ import annotations

import random

import pytest

from router.telemetry.sampler import Sampler


def test_below_the_rate_everything_is_kept() -> None:
    sampler = Sampler(10)
    assert {sampler.probability(second + i / 10) for second in range(5) for i in range(10)} == {1.0}


def test_above_it_the_weighed_sum_is_the_true_one_and_few_are_kept() -> None:
    rng = random.Random(3)
    sampler, kept, weighed, total = Sampler(100), 0, 0.0, 0
    for second in range(60):
        for i in range(2000):
            total += 1
            p = sampler.probability(second + i / 2000)
            if rng.random() < p:
                kept += 1
                weighed += 1 / p
    assert weighed == pytest.approx(total, rel=0.03)
    # The first second is not expected; after it the rate holds.
    assert kept <= 60 * 100 * 1.15


def test_a_quiet_second_opens_it_again() -> None:
    sampler = Sampler(1)
    assert [sampler.probability(t) for t in (0.0, 0.1, 1.0, 3.0)] == [1.0, 0.5, 0.5, 1.0]

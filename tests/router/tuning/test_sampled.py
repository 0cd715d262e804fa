"""Records that stand for several requests: loads, replays and shares come out as if all had been kept."""

from __future__ import annotations

import random

import pytest

from benchmarks.tuning.world import FACTS, World, record, traffic
from router.tuning.analysis import Quality
from router.tuning.evidence import gather
from router.tuning.load_model import Load
from router.tuning.replay import arrivals, crowd

THRESHOLDS = {"int8": 0.3, "int4": 0.3}


def test_a_load_counts_what_was_left_out() -> None:
    world, rng = World(), random.Random(1)
    (one,) = record(world, traffic(world, 1, rng), THRESHOLDS, rng)
    assert Load([one._replace(weight=4.0)]).at(one.at - one.e2e_s / 2) == 4.0


def test_a_crowd_is_as_large_as_it_was() -> None:
    world, rng = World(), random.Random(1)
    some = record(world, traffic(world, 100, rng), THRESHOLDS, rng)
    made = arrivals([r._replace(weight=2.5) for r in some], FACTS)
    found = crowd(made, 10_000)
    assert len(found.arrivals) == 250
    assert [found.arrivals[i].at for i in found.firsts] == [r.at for r in made]
    assert all(a.at <= b.at for a, b in zip(found.arrivals, found.arrivals[1:], strict=False))
    bounded = crowd(made, 100)
    assert (len(bounded.firsts), len(bounded.arrivals)) == (40, 100)
    plain = arrivals(some, FACTS)
    assert crowd(plain, 30).arrivals == plain[-30:]
    assert len(crowd(plain, 1000).arrivals) == 100


def test_a_part_that_was_thinned_out_counts_as_before() -> None:
    # INT4 answers badly, and of its requests only a quarter was kept.
    world, rng = World(shadow=1.0, explore=0.3, loss={"int8": 0.0, "int4": 0.6}), random.Random(2)
    every = record(world, traffic(world, 4000, rng), THRESHOLDS, rng)
    kept = [
        r._replace(weight=4.0) if r.variant == "int4" else r
        for r in every
        if r.variant != "int4" or rng.random() < 0.25
    ]
    wanted, unweighted, weighted = (
        _share_of_int4(records) for records in (every, [r._replace(weight=1.0) for r in kept], kept)
    )
    assert weighted == pytest.approx(wanted, rel=0.1)
    assert unweighted < 0.75 * wanted


def _share_of_int4(records: list) -> float:  # type: ignore[type-arg]
    quality = Quality(records, gather(records, FACTS.reference, 0.2), FACTS, 0.95)
    at = FACTS.variants.index("int4")
    # Probability with which an answer of INT4 was seen, over all strata: each stratum once.
    return sum({s.stratum: s.seen for s in quality._base if s.action == at}.values())

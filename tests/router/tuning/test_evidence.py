"""Labels become differences from full precision; one key has its share and no more."""

from __future__ import annotations

import random

import pytest

from benchmarks.tuning.world import World, record, traffic
from router.tuning.evidence import bin_of, gather, quantiles
from router.tuning.records import Label, Record

REFERENCE = frozenset({"fp16"})
THRESHOLDS = {"int8": 0.3, "int4": 0.3}


def records(world: World, n: int = 1500, seed: int = 1) -> list[Record]:
    rng = random.Random(seed)
    return record(world, traffic(world, n, rng), THRESHOLDS, rng)


def mean_of(pieces: list[float]) -> float:
    return sum(pieces) / len(pieces)


def test_paired_labels_are_differences_and_give_full_precisions_level() -> None:
    found = gather(records(World()), REFERENCE, 0.2)
    assert found.reference_level == pytest.approx(0.8)
    assert {p.kind for p in found.pieces} == {"paired"}
    assert {p.variant for p in found.pieces} == {"int8", "int4"}
    assert -0.06 < mean_of([p.difference for p in found.pieces if p.variant == "int4"]) < 0.0


def test_one_keys_lies_are_left_out_and_said() -> None:
    honest = World(shadow=0.1, feedback=0.5, explore=0.2, loss={"int8": 0.03, "int4": 0.1})
    lying = honest.but(poison=0.0, poisoned_share=0.6)
    clean, poisoned = gather(records(honest), REFERENCE, 0.2), gather(records(lying), REFERENCE, 0.2)
    assert clean.left_out == {}
    assert list(poisoned.left_out) == ["key0"]
    assert "from what the others say" in poisoned.left_out["key0"]
    assert not any(p.key == "key0" for p in poisoned.pieces)


def test_no_key_weighs_more_than_its_share_of_the_evidence() -> None:
    base = records(World(shadow=0.2, feedback=0.0))
    loud = [r._replace(labels=(*r.labels, Label("score", 0.75, None, "loud", r.at))) for r in base]
    found = gather(loud, REFERENCE, 0.2)
    total = sum(p.weight for p in found.pieces)
    assert sum(p.weight for p in found.pieces if p.key == "loud") == pytest.approx(0.2 * total, rel=1e-3)
    assert found.key_share == pytest.approx(0.2, rel=1e-3)


def test_a_key_alone_is_no_evidence() -> None:
    base = records(World(shadow=0.0, feedback=0.5, keys=1))
    assert gather(base, REFERENCE, 0.2).pieces == ()
    assert gather(base, REFERENCE, 1.0).pieces != ()


def test_feedback_without_any_on_full_precision_says_nothing_about_precision() -> None:
    base = [r for r in records(World(shadow=0.0, feedback=0.5)) if r.variant != "fp16"]
    assert gather(base, REFERENCE, 1.0).pieces == ()


def test_implicit_signals_weigh_little() -> None:
    base = records(World(shadow=0.0))
    said = [
        r._replace(labels=(Label("implicit:regenerated", 0.0, None, f"k{i % 9}", r.at),)) for i, r in enumerate(base)
    ]
    assert {p.weight for p in gather(said, REFERENCE, 1.0).pieces} == {0.2}


def test_bins_are_of_like_size() -> None:
    edges = quantiles([float(i) for i in range(100)], 4)
    sizes = [sum(bin_of(float(i), edges) == b for i in range(100)) for b in range(4)]
    assert sizes == [25, 25, 25, 25]
    assert quantiles([1.0] * 10, 4) == [1.0]

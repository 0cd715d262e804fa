"""Judges against people: agreement beyond chance, on answers of which both spoke."""

from __future__ import annotations

from router.feedback.agreement import Agreement, agreements
from router.tuning.records import Label, Record


def record(*labels: Label) -> Record:
    return Record("1", 1.0, "g", "s", "v", "stable", False, "int8", (), {}, 1, 1, None, 1.0, True, labels)


def pair(judge: float, people: float, reference: float | None = 1.0) -> Record:
    return record(Label("shadow:match", judge, reference), Label("thumbs", people))


def test_kappa_is_agreement_beyond_chance() -> None:
    records = [pair(1, 1)] * 20 + [pair(1, 0)] * 5 + [pair(0, 1)] * 10 + [pair(0, 0)] * 15
    (found,) = agreements(records)
    assert found[:4] == ("shadow:match", 50, 0.7, 0.5)
    assert found.kappa is not None
    assert abs(found.kappa - 0.4) < 1e-12


def test_a_pair_is_good_when_no_worse_than_its_reference() -> None:
    (found,) = agreements([pair(0.25, 1, 0.25), pair(0.9, 0, 1.0)])
    assert found.agreed == 1.0


def test_people_count_as_their_mean_and_alone_they_compare_nothing() -> None:
    mixed = record(
        Label("shadow:match", 1, 1), Label("thumbs", 0, key="a"), Label("metric:m", 0.2), Label("score", 0.9)
    )
    assert agreements([mixed]) == [Agreement("shadow:match", 1, 0.0, 0.0, 0.0)]
    assert agreements([record(Label("thumbs", 1)), record(Label("shadow:match", 1, 1))]) == []
    weak = record(Label("implicit:regeneration", 0.0), Label("thumbs", 0))
    assert agreements([weak]) == [Agreement("implicit:regeneration", 1, 1.0, 1.0, None)]

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifier import load
from classifier.drift import (
    LEAST_REQUESTS,
    RISK,
    SHIFTED,
    STABLE,
    Drift,
    Feedback,
    Reference,
    psi,
    reference,
    verdict,
)
from classifier.features import NAMES
from classifier.models import ModelError

WORDS = [
    "tell",
    "me",
    "about",
    "the",
    "sea",
    "and",
    "why",
    "it",
    "is",
    "blue",
    "in",
    "two",
    "short",
    "lines",
    "please",
    "7",
    "12",
    "prove",
]
CLASSIFIER = load()


def traffic(seed: int, count: int, extra: str = "") -> list[dict[str, object]]:
    generator = random.Random(seed)
    return [{"prompt": " ".join(generator.choices(WORDS, k=generator.randint(3, 40))) + extra} for _ in range(count)]


def reference_of(requests: list[dict[str, object]]) -> Reference:
    features = [CLASSIFIER.features(request) for request in requests]
    risks = [CLASSIFIER.risk_of(item).by_precision["int4"] for item in features]
    return Reference.from_content(reference([item.vector for item in features], risks))


def window(against: Reference, requests: list[dict[str, object]]) -> Drift:
    seen = Drift(against)
    for request in requests:
        features = CLASSIFIER.features(request)
        seen.add(features, CLASSIFIER.risk_of(features))
    return seen


AGAINST = reference_of(traffic(0, 1500))


def test_the_same_traffic_is_stable() -> None:
    found = verdict(window(AGAINST, traffic(1, 1500)), AGAINST)
    assert found.enough
    assert not found.shifted
    assert not found.alert
    assert max(found.index.values()) < STABLE


def test_other_traffic_is_named() -> None:
    found = verdict(window(AGAINST, traffic(1, 800, "\n```\nint x = (a[3] + b[4]) * 2;\n```" * 4)), AGAINST)
    assert "fenced_code" in found.shifted or "symbol_share" in found.shifted
    assert found.index["log_lines"] > SHIFTED


def test_too_little_traffic_is_no_alert() -> None:
    found = verdict(window(AGAINST, traffic(1, LEAST_REQUESTS - 1, " 请解释为什么")), AGAINST)
    assert not found.enough
    assert not found.shifted


def test_workers_add_up() -> None:
    requests = traffic(2, 300)
    whole, first, second = window(AGAINST, requests), window(AGAINST, requests[:100]), window(AGAINST, requests[100:])
    first.merge(second)
    assert first.counts == whole.counts
    assert first.requests == whole.requests


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=10))
def test_psi_is_never_below_zero(counts: list[int]) -> None:
    shares = [1 / len(counts)] * len(counts)
    assert psi(counts, shares) >= -1e-9


def test_psi_of_equal_shares_is_zero() -> None:
    assert psi([1000, 1000, 2000], [0.25, 0.25, 0.5]) == pytest.approx(0, abs=1e-5)


def test_shipped_artefacts_carry_a_reference() -> None:
    found = Reference.from_content(CLASSIFIER.artefact.content["reference"])
    assert set(found.edges) == {*NAMES, RISK}


def test_a_reference_that_does_not_fit_is_refused() -> None:
    good = dict(CLASSIFIER.artefact.content["reference"])
    with pytest.raises(ModelError, match="nothing about 'log_tokens'"):
        Reference.from_content({**good, "log_tokens": None})
    with pytest.raises(ModelError, match="edges must grow"):
        Reference.from_content({**good, RISK: {"edges": [2.0, 1.0], "shares": [0.1, 0.2, 0.7]}})


def test_feedback_measures_calibration() -> None:
    generator = random.Random(0)
    right, wrong = Feedback(0.2), Feedback(0.2)
    assert right.error() is None
    assert right.bias() is None
    for _ in range(20_000):
        risk = generator.random() * 0.2
        right.add(risk, generator.random() < risk)
        wrong.add(risk, generator.random() < risk + 0.1)
    assert (right.error() or 0) < 0.01
    assert (wrong.error() or 0) == pytest.approx(0.1, abs=0.01)
    assert (wrong.bias() or 0) == pytest.approx(-0.1, abs=0.01)
    right.add(5.0, True)
    assert sum(right.counts) == 20_001
    with pytest.raises(ValueError, match="highest"):
        Feedback(0)

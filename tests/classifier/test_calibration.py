from __future__ import annotations

from math import exp
from typing import Any

import pytest

from classifier import load
from classifier.calibration import Calibration
from classifier.features import Features
from classifier.models.base import ModelError
from classifier.risks import PRECISIONS

LINE = [-1.0, -0.5, 2.0]


@pytest.fixture(scope="module")
def features() -> Features:
    return load().features({"prompt": "What is 12 times 12?"})


def bent(**other: Any) -> dict[str, Any]:
    """The shipped calibration's content, with a line of two pieces for each precision."""
    intercepts = [-3.0 + 0.1 * place for place in range(len(PRECISIONS))]
    content = {**load().artefact.content["calibration"], "intercepts": intercepts}
    return {**content, "points": [-2.0, 0.0, 2.0], "bends": [LINE] * len(PRECISIONS), **other}


@pytest.mark.parametrize(
    ("z", "moved"), [(-2.0, -1.0), (-1.0, -0.75), (0.0, -0.5), (1.0, 0.75), (2.0, 2.0), (9.0, 2.0)]
)
def test_a_risk_follows_the_line_between_its_points(features: Features, z: float, moved: float) -> None:
    found = Calibration.from_content(bent()).probabilities(z, features)
    assert found[PRECISIONS[0]] == pytest.approx(1 / (1 + exp(3.0 - moved)))


def test_a_lower_precision_never_has_less_risk_whatever_its_line(features: Features) -> None:
    lines = [LINE, *[[0.0, 0.0, 0.0]] * (len(PRECISIONS) - 1)]
    found = Calibration.from_content(bent(bends=lines)).probabilities(2.0, features)
    assert list(found.values()) == sorted(found.values())
    assert found[PRECISIONS[-1]] == found[PRECISIONS[0]]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"points": [0.0, 0.0, 1.0]}, "rising"),
        ({"points": [0.0]}, "points"),
        ({"bends": [LINE]}, "bends must be"),
        ({"bends": [[1.0, 0.0, 2.0]] * len(PRECISIONS)}, "must not fall"),
        ({"bends": [[0.0, 0.0, 1e9]] * len(PRECISIONS)}, "within 100"),
        ({"bends": [[0.0, 0.0]] * len(PRECISIONS)}, "expected 3"),
        ({"bends": {"a": 1}}, "lists"),
        ({"intercepts": [1e9] * len(PRECISIONS)}, "within 100"),
        ({"slope": 1e9, "bends": []}, "within 100"),
    ],
)
def test_what_no_risk_can_be_made_of_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        Calibration.from_content(bent(**changed))


@pytest.mark.parametrize("score", [float("nan"), float("inf"), float("-inf"), 1.7e308, -1.7e308])
def test_whatever_a_model_makes_of_a_request_its_risks_are_numbers(features: Features, score: float) -> None:
    made = Calibration.from_content(bent(covariance=[1e308, -1e308, 1e308]))
    z = made.standard(score, features)
    # A score that is no number must not let a request through that no model has read.
    assert z == (-made.clip if score < 0 else made.clip)
    risks = made.probabilities(z, features)
    assert all(0 <= risk <= 1 for risk in risks.values())
    assert 0 <= made.uncertainty(z, risks["int4"], features) <= 1


def test_a_floor_beyond_the_clip_is_refused() -> None:
    with pytest.raises(ModelError, match="floor"):
        Calibration.from_content(bent(floor=1e308))

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from classifier.conversation import view
from classifier.evaluate import Array
from classifier.features import NAMES, Features, extract
from classifier.fit import FITTERS, Examples, export_trees, fit_platt, intercept_for
from classifier.models import REGISTRY, ModelError, build

WORDS = "alpha beta gamma delta prove compute poem story list integral the a of and"


def some(count: int = 400) -> Examples:
    generator = np.random.default_rng(0)
    features: list[Features] = []
    target: list[float] = []
    for _ in range(count):
        words = generator.choice(WORDS.split(), int(generator.integers(3, 60))).tolist()
        digits = [str(n) for n in generator.integers(0, 1000, int(generator.integers(0, 9)))]
        text = " ".join([*words, *digits])
        features.append(extract(view({"prompt": text})))
        target.append(
            0.4 * ("integral" in words) - 0.3 * ("poem" in words) + 0.02 * len(digits) + generator.normal(0, 0.1)
        )
    return Examples(features, np.array(target), [str(number % 40) for number in range(count)])


EXAMPLES = some()


def test_every_registered_model_has_a_fitter() -> None:
    assert set(FITTERS) == set(REGISTRY)


@pytest.mark.parametrize("kind", sorted(FITTERS))
def test_parameters_are_plain_json_and_score_the_same_after_it(kind: str) -> None:
    parameters = FITTERS[kind](EXAMPLES, 0)
    again = json.loads(json.dumps(parameters, allow_nan=False))
    one, other = build(kind, parameters), build(kind, again)
    scores = [one.score(item) for item in EXAMPLES.features]
    assert scores == [other.score(item) for item in EXAMPLES.features]
    assert parameters == FITTERS[kind](EXAMPLES, 0)


@pytest.mark.parametrize("kind", ["linear", "trees", "words", "blend"])
def test_models_that_learn_learn(kind: str) -> None:
    model = build(kind, FITTERS[kind](EXAMPLES, 0))
    scores = np.array([model.score(item) for item in EXAMPLES.features])
    assert np.corrcoef(scores, EXAMPLES.target)[0, 1] > (0.3 if kind == "linear" else 0.5)


@pytest.mark.parametrize("kind", ["linear", "words", "length"])
def test_contributions_add_up_to_the_score(kind: str) -> None:
    parameters = FITTERS[kind](EXAMPLES, 0)
    model = build(kind, parameters)
    for item in EXAMPLES.features[:20]:
        parts = model.contributions(item)
        start = parameters.get("intercept", 0.0)
        assert isinstance(start, float)
        assert sum(parts.values()) + start == pytest.approx(model.score(item), abs=1e-6)


def test_exported_trees_score_as_sklearn_does() -> None:
    rows = np.round(EXAMPLES.matrix(), 6)
    with threadpool_limits(limits=1):
        trained = HistGradientBoostingRegressor(max_iter=30, max_leaf_nodes=8, random_state=0).fit(
            rows, EXAMPLES.target
        )
    model = build("trees", export_trees(trained))
    ours = [model.score(Features(tuple(row), frozenset(), EXAMPLES.features[0].conversation)) for row in rows.tolist()]
    assert ours == pytest.approx(trained.predict(rows).tolist(), abs=1e-4)


def test_length_never_makes_a_tree_score_easier() -> None:
    model = build("trees", FITTERS["trees"](EXAMPLES, 0))
    for item in EXAMPLES.features[:40]:
        scores = [
            model.score(Features((length, *item.vector[1:]), item.words, item.conversation))
            for length in np.linspace(0, 9, 30)
        ]
        assert scores == sorted(scores)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"right": [0, 0, 0]}, "children must stand after it"),
        ({"feature": [99, -1, -1]}, "expected whole numbers"),
        ({"feature": [0.5, -1, -1]}, "expected whole numbers"),
        ({"roots": [7]}, "expected whole numbers"),
        ({"value": [1.0, float("inf"), 0.0]}, "finite"),
        ({"start": None}, "expected a finite number"),
    ],
)
def test_trees_that_could_not_end_are_refused(change: dict[str, object], message: str) -> None:
    good: dict[str, object] = {
        "start": 0.0,
        "roots": [0],
        "feature": [0, -1, -1],
        "value": [1.0, 2.0, 3.0],
        "right": [2, 0, 0],
    }
    assert build("trees", good)
    with pytest.raises(ModelError, match=message):
        build("trees", {**good, **change})


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("words", {"intercept": 0.0, "smoothing": 1.0, "weights": {"a": "b"}}),
        ("words", {"intercept": 0.0, "smoothing": 0.0, "weights": {}}),
        ("words", {"intercept": 0.0, "smoothing": 1.0, "weights": []}),
        ("blend", {"members": []}),
        ("blend", {"members": [{"kind": "blend", "parameters": {"members": []}}]}),
        ("blend", {"members": [{"kind": "length", "parameters": {}, "mean": 0, "scale": 0, "weight": 1}]}),
        ("linear", {"intercept": 0.0}),
        ("linear", dict.fromkeys(("weights", "centre", "low", "high"), [1.0] * (len(NAMES) - 1)) | {"intercept": 1.0}),
        ("pickle", {}),
    ],
)
def test_parameters_that_do_not_fit_are_refused(kind: str, parameters: dict[str, object]) -> None:
    with pytest.raises(ModelError):
        build(kind, parameters)


def test_platt_recovers_what_made_the_labels() -> None:
    generator = np.random.default_rng(3)
    z: Array = generator.normal(size=20_000)
    loss = (generator.random(20_000) < 1 / (1 + np.exp(2 - 0.8 * z))).astype(float)
    found = fit_platt(z, loss, 0.0, 10.0)
    assert found.intercept == pytest.approx(-2, abs=0.1)
    assert found.slope == pytest.approx(0.8, abs=0.08)
    assert min(found.covariance[0], found.covariance[2]) > 0


def test_few_losses_leave_the_prior() -> None:
    z = np.linspace(-2, 2, 40)
    loss = np.zeros(40)
    loss[5] = 1
    assert fit_platt(z, loss, 0.3, 0.05).slope == pytest.approx(0.3, abs=0.05)
    assert fit_platt(z, loss, -0.5, 0.01, floor=0.1).slope == 0.1


@given(st.floats(0.001, 0.999), st.lists(st.floats(-5, 5), min_size=1, max_size=30))
def test_the_intercept_meets_the_rate(rate: float, moved: list[float]) -> None:
    values = np.array(moved)
    start = intercept_for(rate, values)
    assert float((1 / (1 + np.exp(-(start + values)))).mean()) == pytest.approx(rate, abs=1e-6)

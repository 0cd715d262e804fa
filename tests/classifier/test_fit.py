from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from classifier.conversation import view
from classifier.evaluate import Array
from classifier.features import GROWING, NAMES, Features, extract
from classifier.fit import FITTERS, Examples, export_trees, fit_platt, intercept_for
from classifier.models import REGISTRY, Model, ModelError, build
from classifier.models.blend import Blend

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
PLAIN = sorted(set(FITTERS) - {"embedding", "head"})
ONE_MEMBER: dict[str, object] = {
    "members": [{"kind": "length", "parameters": {}, "mean": 0, "scale": 1}],
    "sharpness": 1,
    "ends": [],
}


def test_every_registered_model_has_a_fitter() -> None:
    # An adapted model is fitted to answers of one's own traffic (`classifier.adapt`).
    assert set(FITTERS) == set(REGISTRY) - {"adapted"}


@pytest.mark.parametrize("kind", PLAIN)
def test_parameters_are_plain_json_and_score_the_same_after_it(kind: str) -> None:
    parameters = FITTERS[kind](EXAMPLES, 0)
    again = json.loads(json.dumps(parameters, allow_nan=False))
    one, other = build(kind, parameters), build(kind, again)
    scores = [one.score(item) for item in EXAMPLES.features]
    assert scores == [other.score(item) for item in EXAMPLES.features]
    assert parameters == FITTERS[kind](EXAMPLES, 0)


@pytest.mark.parametrize("kind", ["linear", "trees", "words", "growing", "neighbours", "blend", "guarded"])
def test_models_that_learn_learn(kind: str) -> None:
    model = build(kind, FITTERS[kind](EXAMPLES, 0))
    scores = np.array([model.score(item) for item in EXAMPLES.features])
    assert np.corrcoef(scores, EXAMPLES.target)[0, 1] > (0.3 if kind in ("linear", "growing") else 0.5)


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


@pytest.mark.parametrize("kind", ["trees", "growing"])
def test_what_text_can_only_raise_never_makes_a_score_easier(kind: str) -> None:
    model = build(kind, FITTERS[kind](EXAMPLES, 0))
    for name in GROWING:
        at = NAMES.index(name)
        for item in EXAMPLES.features[:10]:
            scores = [
                model.score(Features((*item.vector[:at], value, *item.vector[at + 1 :]), item.words, item.conversation))
                for value in np.linspace(0, 9, 20)
            ]
            assert scores == sorted(scores)


def test_growing_looks_at_nothing_that_can_be_diluted() -> None:
    parameters = FITTERS["growing"](EXAMPLES, 0)
    used = {NAMES[index] for index in parameters["feature"] if index >= 0}  # type: ignore[union-attr]
    assert used
    assert used <= GROWING


class Fixed:
    """Scores by the words seen."""

    def __init__(self, scores: dict[bytes, float]) -> None:
        self.scores = scores

    def score(self, features: Features) -> float:
        return sum(self.scores.get(word, 0.0) for word in features.words)

    def contributions(self, features: Features) -> dict[str, float]:
        return {word.decode(): self.scores[word] for word in sorted(features.words) if word in self.scores}


def members(*standing: tuple[str, dict[bytes, float]]) -> tuple[tuple[str, Model, float, float], ...]:
    return tuple((kind, Fixed(scores), 0.0, 1.0) for kind, scores in standing)


def test_a_blend_is_a_smooth_maximum_of_standardised_scores() -> None:
    three = tuple((name, Fixed({b"word": score}), 1.0, 2.0) for name, score in (("a", 3.0), ("b", 5.0), ("c", -99.0)))
    seen = extract(view({"prompt": "word"}))
    for sharpness in (0.5, 2.0):
        expected = math.log(sum(math.exp(sharpness * z) for z in (1.0, 2.0, -3.0)) / 3) / sharpness
        assert Blend(three, sharpness).score(seen) == pytest.approx(expected)
    assert Blend(three, 0.001).score(seen) == pytest.approx(0.0, abs=0.01)
    assert 1.9 < Blend(three, 15.0).score(seen) <= 2.0
    # The whole follows the hardest member.
    assert Blend(three, 15.0).contributions(seen)["word"] == pytest.approx(5.0 / 2, abs=0.01)


def test_no_member_is_left_far_below_and_growing_never() -> None:
    """However easy the others find it, a blend stays near the member that finds it hardest, and not under the steady one."""
    others: tuple[tuple[str, dict[bytes, float]], ...] = (("b", {b"prove": -3.0}), ("c", {b"prove": -3.0}))
    seen = extract(view({"prompt": "prove"}))
    assert 1.5 - math.log(3) / 2 <= Blend(members(("a", {b"prove": 1.5}), *others), 2.0).score(seen) < 1.4
    held = Blend(members(("growing", {b"prove": 1.5}), *others), 2.0)
    assert held.score(seen) == 1.5
    assert held.contributions(seen) == {"prove": 1.5}


def test_words_are_held_to_those_at_either_end() -> None:
    given = {"intercept": 0.0, "smoothing": 1.0, "weights": {"prove": 3.0, "sea": -3.0}, "ends": 4}
    model, free = build("words", given), build("words", {**given, "ends": 0})
    hard = "now prove it all"
    alone = model.score(extract(view({"prompt": hard})))
    for text in (hard + " sea" * 3 + " so it is", "so it is sea sea " + hard):
        seen = extract(view({"prompt": text}))
        assert free.score(seen) == 0.0
        assert model.score(seen) == alone > 1
        assert model.contributions(seen) == {"'prove'": pytest.approx(alone)}


def test_a_blend_is_held_to_both_ends_of_the_text() -> None:
    hard = "Now prove what I said about that number, and then show it. " * 2
    easy = "The sea is wide and the sky is blue, as we have seen it. " * 2
    both = members(("growing", {b"number": -2.0}), ("words", {b"prove": 2.0, b"sea": -3.0}))
    free, held = Blend(both, 2.0), Blend(both, 2.0, (100,))
    alone = held.score(extract(view({"prompt": hard})))
    for text in (hard + easy, easy + hard, easy + hard + easy):
        seen = extract(view({"prompt": text}))
        assert free.score(seen) < alone - 0.5
        assert held.score(seen) == pytest.approx(alone if text != easy + hard + easy else free.score(seen))
    assert held.contributions(extract(view({"prompt": hard + easy})))["prove"] > 0
    assert free.contributions(extract(view({"prompt": hard + easy})))["sea"] < 0


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
        ("words", {"intercept": 0.0, "smoothing": 1.0, "weights": {"a": "b"}, "ends": 0}),
        ("words", {"intercept": 0.0, "smoothing": 0.0, "weights": {}, "ends": 0}),
        ("words", {"intercept": 0.0, "smoothing": 1.0, "weights": [], "ends": 0}),
        ("words", {"intercept": 0.0, "smoothing": 1.0, "weights": {}}),
        ("words", {"intercept": 0.0, "smoothing": 1.0, "weights": {}, "ends": 0.5}),
        ("blend", {"members": []}),
        ("blend", {"members": [{"kind": "blend", "parameters": {"members": []}}]}),
        ("blend", {"members": [{"kind": "length", "parameters": {}, "mean": 0, "scale": 0}]}),
        ("blend", {**ONE_MEMBER, "sharpness": 0}),
        ("blend", {**ONE_MEMBER, "ends": [10]}),
        ("blend", {**ONE_MEMBER, "ends": [100.5]}),
        ("blend", {**ONE_MEMBER, "ends": [100] * 5}),
        ("blend", {"members": ONE_MEMBER["members"], "sharpness": 1}),
        ("neighbours", {"words": ["a"], "idf": [1.0], "rows": [[1]], "target": [0.0], "nearest": 1, "prior": 1.0}),
        ("neighbours", {"words": ["a"], "idf": [1.0], "rows": [[0]], "target": [], "nearest": 1, "prior": 1.0}),
        ("guarded", {"members": [{"kind": "guarded", "parameters": {}, "mean": 0, "scale": 1}]}),
        ("head", {"hidden": []}),
        ("head", {"hidden": [[1.0]]}),
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


def test_a_benchmark_counts_by_the_square_root_of_its_rows() -> None:
    part = EXAMPLES.part(range(100))
    assert part.weights().tolist() == [1.0] * 100
    mixed = replace(part, sources=["large"] * 80 + ["small"] * 20)
    weights = mixed.weights()
    assert weights[:80].sum() == pytest.approx(2 * weights[80:].sum())
    assert weights.mean() == pytest.approx(1)
    assert len(set(weights[:80])) == 1
    mean, scale = mixed.spread([0.0] * 80 + [3.0] * 20)
    assert (mean, scale) == pytest.approx((1.0, math.sqrt(2)))
    assert mixed.part([0, 90]).sources == ["large", "small"]


@pytest.mark.parametrize("kind", ["linear", "words", "growing"])
def test_a_small_benchmark_is_heard(kind: str) -> None:
    """What a few rows of another benchmark say is learnt better than by their number."""
    few = [number for number, item in enumerate(EXAMPLES.features) if b"poem" in item.words][:40]
    target = EXAMPLES.target.copy()
    target[few] += 2.0
    rows = replace(EXAMPLES, target=target)
    sources = ["small" if number in few else "large" for number in range(len(target))]

    def gap(examples: Examples) -> float:
        model = build(kind, FITTERS[kind](examples, 0))
        scores = np.array([model.score(item) for item in examples.features])
        return float(scores[few].mean() - scores.mean())

    assert gap(replace(rows, sources=sources)) > 1.1 * gap(rows)

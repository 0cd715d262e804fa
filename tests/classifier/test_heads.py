from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from classifier.conversation import view
from classifier.encoders import Known
from classifier.features import NAMES, Features, extract
from classifier.fit import FITTERS, Examples
from classifier.models import ModelError, build
from classifier.models.head import Head

UNITS, VECTOR = 3, 4
TEXT = "Prove that 2 + 2 is 4, and explain why."


def parameters(inputs: int) -> dict[str, object]:
    generator = np.random.default_rng(0)
    return {
        "centre": generator.random(len(NAMES)).tolist(),
        "scale": (0.5 + generator.random(len(NAMES))).tolist(),
        "low": [0.0] * len(NAMES),
        "high": [2.0] * len(NAMES),
        "hidden": generator.normal(0, 0.3, (UNITS, inputs)).tolist(),
        "hidden_bias": generator.normal(size=UNITS).tolist(),
        "weights": generator.normal(size=UNITS).tolist(),
        "bias": 0.25,
        "vector_scale": 2.0,
    }


def written_out(given: dict[str, Any], features: Features, vector: Any) -> float:
    clipped = np.clip(features.vector, given["low"], given["high"])
    inputs = np.concatenate([(clipped - given["centre"]) / given["scale"], given["vector_scale"] * np.array(vector)])
    hidden = np.tanh(np.array(given["hidden"]) @ inputs + given["hidden_bias"])
    return float(hidden @ given["weights"] + given["bias"])


def test_a_head_on_features_is_its_formula() -> None:
    given, seen = parameters(len(NAMES)), extract(view({"prompt": TEXT}))
    model = build("head", json.loads(json.dumps(given)))
    assert model.score(seen) == pytest.approx(written_out(given, seen, []))
    parts = model.contributions(seen)
    assert set(parts) == set(NAMES)
    # A feature at its mean moves nothing.
    at = NAMES.index("log_tokens")
    centre: Any = given["centre"]
    average = Features((centre[0], *seen.vector[1:]), seen.words, seen.conversation)
    assert at == 0
    assert model.contributions(average)["log_tokens"] == pytest.approx(0)
    assert parts["log_tokens"] == pytest.approx(model.score(seen) - model.score(average))


def test_a_head_reads_the_encoders_vector() -> None:
    given, seen = parameters(len(NAMES) + VECTOR), extract(view({"prompt": TEXT}))
    known = Known("f", {})
    known.add(TEXT, np.array([0.5, -0.5, 0.5, 0.5]))
    model = build("head", {**given, "folder": "", "fingerprint": "f"}, known)
    assert model.score(seen) == pytest.approx(written_out(given, seen, [0.5, -0.5, 0.5, 0.5]))
    assert model.contributions(seen)["embedding"] == pytest.approx(
        model.score(seen) - written_out(given, seen, [0.0] * VECTOR)
    )
    with pytest.raises(ModelError):
        build("head", given, known)
    with pytest.raises(ModelError):
        build("head", {**given, "folder": "/nowhere", "fingerprint": "f"})


@pytest.mark.parametrize(
    "change", [{"scale": [0.0] * len(NAMES)}, {"weights": [1.0]}, {"bias": None}, {"hidden": [[]]}]
)
def test_what_does_not_fit_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ModelError):
        build("head", {**parameters(len(NAMES)), **change})


def test_a_head_learns_from_the_vectors() -> None:
    pytest.importorskip("torch")
    generator = np.random.default_rng(1)
    features, target, known = [], [], Known("f", {})
    for number in range(2000):
        one = float(generator.choice([-1.0, 0.0, 1.0]))
        text = f"Question {number}: prove it."
        known.add(text, np.array([one, 0.5, 0.5, 0.0]))
        features.append(extract(view({"prompt": text})))
        target.append(one)
    rows = Examples(features, np.array(target), [str(n) for n in range(2000)], known=known)
    made = FITTERS["head"](rows, 0)
    assert made == FITTERS["head"](rows, 0)
    model = rows.built("head", json.loads(json.dumps(made, allow_nan=False)))
    assert isinstance(model, Head)
    scores = [model.score(item) for item in features]
    assert np.corrcoef(scores, target)[0, 1] > 0.8


def test_a_head_serves_without_pytorch_or_numpy(tmp_path: Path) -> None:
    path = tmp_path / "head.json"
    path.write_text(json.dumps(parameters(len(NAMES))))
    code = (
        "import json, sys; from classifier.models import build; from classifier.features import extract; "
        "from classifier.conversation import view; model = build('head', json.load(open(sys.argv[1]))); "
        "model.score(extract(view({'prompt': 'hi'}))); print([m for m in ('torch', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from classifier.artefact import read, save
from classifier.card import card
from classifier.conversation import view
from classifier.data import chat, key
from classifier.drift import Reference
from classifier.features import extract
from classifier.labels import Loss
from classifier.own import OwnDataError, Row, content, random_share, share_at
from classifier.risks import PRECISIONS
from classifier.scoring import Trained

HARD, EASY = "Prove the theorem about the integral {}", "Write a short poem about the sea {}"


def _rows(size: int, *, skill: bool, rate: float = 0.3, seed: int = 0) -> list[Row]:
    """Prompts of two kinds; with `skill`, INT4 loses on the hard ones, without it anywhere. INT8 never loses."""
    draw = np.random.default_rng(seed)
    rows = []
    for number in range(size):
        hard = number % 2 == 0
        request = chat((HARD if hard else EASY).format("x " * int(draw.integers(0, 30)) + str(number)))
        lost = draw.random() < ((0.85 if hard else 0.02) if skill else rate)
        losses = {
            "int8": {"agreement": Loss(1.0, 1.0, False, 0.0)},
            "int4": {"agreement": Loss(1.0, float(not lost), bool(lost), float(lost))},
        }
        features = extract(view(request))
        rows.append(Row(features, key(features.conversation.text), "open", losses))
    return rows


def _saved(path: Path, made: dict[str, Any]) -> Trained:
    save(path, {**made, "name": "own", "date": "2026-01-01"})
    return Trained(read(path))


def test_a_skill_that_is_there_is_found_and_calibrated(tmp_path: Path) -> None:
    made = content(_rows(400, skill=True), label="agreement", margin=0.01, kind="linear")
    figures = made["figures"]
    assert figures["labels"]["agreement"]["int4"]["auc"]["low"] > 0.8
    assert figures["calibration_error"]["int4"] < 0.08
    assert figures["calibration_error"]["int8"] < 0.02
    share = figures["shares"]["agreement"]["int4"]["0.95"]
    assert share["classifier"] > share["random"] + 0.2
    assert share["oracle"] >= share["classifier"]
    assert figures["shares"]["agreement"]["int8"]["0.99"]["classifier"] == 1
    classifier = _saved(tmp_path / "own.json", made)
    easy, hard = (classifier.risk(chat(text.format("today"))).by_precision for text in (EASY, HARD))
    assert list(easy.values()) == sorted(easy.values())
    assert hard["int4"] > 0.5 > easy["int4"]
    # 200 prompts without a loss don't prove that under 1% are lost; 1% of margin takes about 460.
    assert easy["int8"] > 0


def test_worthless_prompt_risks_are_said_to_be_and_segments_route(tmp_path: Path) -> None:
    made = content(_rows(300, skill=False), label="agreement", margin=0.01, kind="linear")
    assert made["figures"]["worth"]["per_prompt"] is False
    classifier = _saved(tmp_path / "own.json", made)
    one, two = (classifier.risk(chat(EASY.format(word))) for word in ("7", "tomorrow, with gulls, salt and 3 boats"))
    assert one.by_precision == two.by_precision
    text = card(classifier.artefact)
    assert "segment's mean" in text
    assert "routed by their segment's mean" in text


def test_proven_segments_go_down_whole_and_harmful_ones_do_not(tmp_path: Path) -> None:
    made = content(_rows(2400, skill=True), label="agreement", margin=0.01, kind="length")
    classifier = _saved(tmp_path / "own.json", made)
    easy, hard = (classifier.risk(chat(text.format("today"))).by_precision for text in (EASY, HARD))
    assert easy["int8"] == hard["int8"] == easy["fp8"] == 0
    assert hard["int4"] == hard["nvfp4"] == 1
    table = made["figures"]["segments"]["agreement"]
    assert table["int8 all"]["verdict"] == "non_inferior"
    assert table["int4 kind=mathematics"]["verdict"] == "inferior"


def test_the_artefact_stands_alone(tmp_path: Path) -> None:
    made = content(_rows(120, skill=True), label="auto", margin=0.02, kind="linear")
    assert made["label"] == "agreement"
    classifier = _saved(tmp_path / "own.json", made)
    Reference.from_content(classifier.artefact.content["reference"])
    assert set(classifier.thresholds) == {"fp8", "int8", "nvfp4", "mxfp4", "int4"}
    assert classifier.thresholds["fp8"] == classifier.thresholds["int8"]
    assert "2.0% of full precision" in card(classifier.artefact)
    assert json.loads((tmp_path / "own.json").read_text())["figures"]["labelled"] == 120


def test_one_precision_alone() -> None:
    rows = [Row(r.features, r.group, r.task, {"int4": r.losses["int4"]}) for r in _rows(100, skill=True)]
    made = content(rows, label="agreement", margin=0.01, kind="linear")
    assert made["figures"]["tested"] == ["int4"]
    assert len(set(made["calibration"]["intercepts"])) == 1


@pytest.mark.parametrize(
    ("size", "options", "told"),
    [
        (10, {}, "at least 50"),
        (60, {"label": "task"}, "0 prompts with the label 'task'"),
        (60, {"label": "nonsense"}, "unknown label"),
        (60, {"kind": "nonsense"}, "unknown model"),
    ],
)
def test_too_little_is_refused(size: int, options: dict[str, str], told: str) -> None:
    chosen: dict[str, Any] = {"label": "agreement", "kind": "linear", "margin": 0.01, **options}
    with pytest.raises(OwnDataError, match=told):
        content(_rows(size, skill=True), **chosen)


def test_shares_keep_quality() -> None:
    full, own = np.ones(10), np.array([1.0] * 8 + [0.0] * 2)
    assert share_at(np.arange(10.0), full, own, 0.95) == (0.8, 7.0)
    assert share_at(np.arange(10.0), full, own, 0.9) == (0.9, 8.0)
    # Equal risks go together, so the first loss keeps them all back.
    assert share_at(np.zeros(10), full, own, 0.95) == (0.0, 0.0)
    assert share_at(-np.arange(10.0), full, own, 0.95)[0] == 0
    assert random_share(full, own, 0.95) == pytest.approx(0.25)
    assert random_share(full, full, 0.99) == 1


def test_each_precision_is_calibrated_by_its_own_line(tmp_path: Path) -> None:
    # At int4 hard prompts differ, at int8 none does more than another: one line for both would be wrong at one of them.
    rows = _rows(800, skill=True)
    lost = np.random.default_rng(5).random(len(rows)) < 0.4
    flat = [
        Row(
            r.features, r.group, r.task, {**r.losses, "int8": {"agreement": Loss(1.0, float(not x), bool(x), float(x))}}
        )
        for r, x in zip(rows, lost, strict=True)
    ]
    made = content(flat, label="agreement", margin=0.01, kind="linear")
    rise = {name: line[-1] - line[0] for name, line in zip(PRECISIONS, made["calibration"]["bends"], strict=True)}
    assert rise["int4"] > 3 * rise["int8"]
    errors = made["figures"]["calibration_error"]
    assert max(errors.values()) < 0.08
    calibration = _saved(tmp_path / "own.json", made).artefact.calibration
    for z in (-3.0, 0.0, 3.0):
        risks = list(calibration.probabilities(z, rows[0].features).values())
        assert risks == sorted(risks)

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from classifier.artefact import FOLDER, ArtefactError, digest, read, save
from classifier.card import card
from classifier.features import FEATURE_VERSION, NAMES
from classifier.scoring import shipped


@pytest.fixture
def content() -> dict[str, Any]:
    return dict(json.loads((FOLDER / "default.json").read_text(encoding="utf-8")))


def written(path: Path, content: dict[str, Any], *, sign: bool = True) -> Path:
    if sign:
        content["sha256"] = digest(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", shipped())
def test_shipped_artefacts_have_cards(name: str) -> None:
    artefact = read(FOLDER / f"{name}.json")
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    # Nothing in it was written by hand: each sentence follows the artefact's own figures.
    assert text == card(artefact)
    assert ("It looks at nothing" in text) == (name in ("constant", "random"))
    assert ("all general traffic" in text) == (name == "constant")
    for licence in ("Apache-2.0", "MIT", "ODC-By"):
        assert licence in text
    assert artefact.content["labels"]
    assert artefact.content["thresholds"]["recommended"]["int4"] > 0


def test_saved_artefacts_load(tmp_path: Path, content: dict[str, Any]) -> None:
    saved = save(tmp_path / "a" / "x.json", content)
    assert read(tmp_path / "a" / "x.json").content == saved.content
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["x.json"]


def test_the_hash_ignores_order_and_spaces(content: dict[str, Any]) -> None:
    assert digest(dict(reversed(content.items()))) == digest(content) == content["sha256"]


def test_a_changed_number_is_refused(tmp_path: Path, content: dict[str, Any]) -> None:
    content["calibration"]["slope"] += 1e-6
    with pytest.raises(ArtefactError, match="doesn't match its sha256"):
        read(written(tmp_path / "x.json", content, sign=False))


def test_another_feature_version_is_refused(tmp_path: Path, content: dict[str, Any]) -> None:
    content["feature_version"] = FEATURE_VERSION + 1
    with pytest.raises(ArtefactError, match=r"feature version .*train it again with `bitgear classifier train`"):
        read(written(tmp_path / "x.json", content))


def test_another_format_is_refused(tmp_path: Path, content: dict[str, Any]) -> None:
    content["format"] = 99
    with pytest.raises(ArtefactError, match="format 99; this Bitgear reads format 1"):
        read(written(tmp_path / "x.json", content))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[1]", "expected an object"),
        ('{"format": NaN}', "NaN"),
        ("{}", "format None"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ArtefactError, match=message):
        read(path)


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (("model", "kind"), "pickle", "unknown model 'pickle'; known: .*linear"),
        (("model", "parameters"), [], "needs a `kind` and `parameters`"),
        (("calibration", "scale"), 0, "above 0"),
        (("calibration", "slope"), -1.0, "slope must not be below 0"),
        (("calibration", "slope"), "1", "expected a finite number"),
        (("calibration", "intercepts"), [0.0, -1.0, 0.0, 0.0, 0.0], "must not fall"),
        (("calibration", "low"), [0.0], f"expected {len(NAMES)} numbers, found 1"),
        (("calibration",), None, "must be objects"),
        (("name",), 3, "must be strings"),
        (("name",), "x\r\ny: z", "printable"),
        (("name",), "x" * 129, "printable"),
        (("date",), "", "printable"),
        (("thresholds",), None, "needs `recommended`"),
        (("thresholds", "recommended"), [0.1], "needs `recommended`"),
        (("thresholds", "recommended"), {"int4": "0.1"}, "thresholds.int4"),
        (("thresholds", "recommended"), {"int4": 1.5}, "thresholds.int4"),
        (("thresholds", "recommended"), {"int3": 0.1}, "'int3' is no precision"),
        (("calibration", "mean"), 10**400, "nothing can be made of"),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    tmp_path: Path, content: dict[str, Any], where: tuple[str, ...], value: object, message: str
) -> None:
    target = content
    for key in where[:-1]:
        target = target[key]
    target[where[-1]] = value
    with pytest.raises(ArtefactError, match=message):
        read(written(tmp_path / "x.json", content))


def test_a_number_that_json_reads_as_infinite_is_refused(tmp_path: Path, content: dict[str, Any]) -> None:
    path = written(tmp_path / "x.json", content)
    path.write_text(path.read_text().replace('"format": 1', '"more": 1e999, "format": 1'))
    with pytest.raises(ArtefactError, match="not JSON compliant"):
        read(path)


def _leaf(roots: int) -> dict[str, Any]:
    return {"start": 0.0, "value": [0.0], "feature": [-1], "right": [0], "roots": [0] * roots}


def _chain(length: int) -> dict[str, Any]:
    nodes = [*range(2 * length + 1)]
    return {
        "start": 0.0,
        "value": [1e9] * len(nodes),
        "feature": [0] * length + [-1] * (length + 1),
        "right": [length + 1 + i if i else length + 1 for i in range(length)] + [0] * (length + 1),
        "roots": [0],
    }


@pytest.mark.parametrize("made", [_leaf, _chain])
def test_trees_that_would_hold_every_request_up_are_refused(
    tmp_path: Path, content: dict[str, Any], made: Callable[[int], dict[str, Any]]
) -> None:
    for size in (9_000, 11_000):
        content["model"] = {"kind": "trees", "parameters": made(size)}
        path = written(tmp_path / "x.json", content)
        if size < 10_000:
            assert read(path).kind == "trees"
        else:
            with pytest.raises(ArtefactError, match="steps a request"):
                read(path)


def test_models_made_of_others_do_not_nest(tmp_path: Path, content: dict[str, Any]) -> None:
    linear = {"intercept": 0.0, **{n: [0.0] * len(NAMES) for n in ("weights", "centre", "low", "high")}}
    whole = content["model"]
    correction = {"mean": 0.0, "scale": 1.0, "clip": 1.0, "weight": 1.0, "linear": linear}
    content["model"] = {"kind": "adapted", "parameters": {"base": whole, **correction}}
    assert read(written(tmp_path / "x.json", content)).kind == "adapted"
    member = {**content["model"], "mean": 0.0, "scale": 1.0}
    content["model"] = {"kind": "blend", "parameters": {"members": [member], "sharpness": 1.0, "ends": [100]}}
    with pytest.raises(ArtefactError, match="of a single model"):
        read(written(tmp_path / "x.json", content))


def test_save_refuses_what_would_not_load(tmp_path: Path, content: dict[str, Any]) -> None:
    content["figures"]["auc_int4"] = float("nan")
    with pytest.raises(ArtefactError):
        save(tmp_path / "x.json", content)
    assert not (tmp_path / "x.json").exists()

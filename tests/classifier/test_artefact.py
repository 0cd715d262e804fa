from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from classifier.artefact import FOLDER, ArtefactError, digest, read, save
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
    assert artefact.version in text
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


def test_save_refuses_what_would_not_load(tmp_path: Path, content: dict[str, Any]) -> None:
    content["figures"]["auc_int4"] = float("nan")
    with pytest.raises(ArtefactError):
        save(tmp_path / "x.json", content)
    assert not (tmp_path / "x.json").exists()

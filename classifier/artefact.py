"""Artefacts: everything a classifier needs, as plain JSON that holds no code and carries its own hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from classifier.calibration import Calibration
from classifier.features import FEATURE_VERSION
from classifier.models import Model, ModelError, build
from classifier.risks import PRECISIONS
from classifier.segments import Segments

FORMAT = 1
"""Layout of the file."""
FOLDER = Path(__file__).parent / "artefacts"
"""The artefacts shipped with the package."""
_MAX_BYTES = 64 * 2**20
_LONGEST_NAME = 128


class ArtefactError(ValueError):
    """An artefact is missing, damaged, or made for another version."""


@dataclass(frozen=True, slots=True)
class Artefact:
    """A trained classifier's parts."""

    name: str
    version: str
    """Name, date and the hash's first digits: goes into each decision."""
    kind: str
    model: Model
    calibration: Calibration
    content: Mapping[str, Any]
    """The whole file: labels, data, figures, date and the card's text included."""
    segments: Segments | None = None
    """What was proven of segments on the user's own variants; None: nothing."""


def digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 (hexadecimal) of the canonical JSON: sorted keys, no spaces, the field `sha256` left out."""
    body = {key: value for key, value in content.items() if key != "sha256"}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def dump(content: Mapping[str, Any], where: str = "the artefact") -> tuple[bytes, Artefact]:
    """Return an artefact's bytes with its hash in them, and how they load. Raises `ArtefactError` when they would not."""
    complete = {**content, "format": FORMAT, "feature_version": FEATURE_VERSION}
    try:
        complete["sha256"] = digest(complete)
    except ValueError as error:
        raise ArtefactError(f"{where}: {error}") from None
    artefact = _parse(complete, where)
    return (json.dumps(complete, sort_keys=True, ensure_ascii=False, indent=1) + "\n").encode(), artefact


def save(path: Path, content: Mapping[str, Any]) -> Artefact:
    """Write an artefact with its hash, and return it as it will load. Raises `ArtefactError` when it would not."""
    data, artefact = dump(content, str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    # Renamed into place: a reader never sees half a file.
    partial = path.with_suffix(".partial")
    partial.write_bytes(data)
    partial.replace(path)
    return artefact


def read(path: Path) -> Artefact:
    """Return the artefact in a file. Raises `ArtefactError`, which says what is wrong and what to do."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ArtefactError(f"{path}: larger than {_MAX_BYTES >> 20} MiB; this is not an artefact")
        data = path.read_bytes()
    except OSError as error:
        raise ArtefactError(f"{path}: cannot be read: {error.strerror}") from None
    return parse(data, str(path))


def parse(data: bytes, where: str) -> Artefact:
    """Return the artefact in `data`; `where` names it in errors. Raises `ArtefactError`."""
    try:
        content = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except ArtefactError:
        raise
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"{where}: not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ArtefactError(f"{where}: expected an object, found {type(content).__name__}")
    found = content.get("format")
    if found != FORMAT:
        raise ArtefactError(f"{where}: format {found!r:.40}; this Bitgear reads format {FORMAT}")
    try:
        expected = digest(content)
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"{where}: {error}") from None
    if content.get("sha256") != expected:
        raise ArtefactError(f"{where}: its content doesn't match its sha256; it was changed or damaged")
    return _parse(content, where)


def _parse(content: Mapping[str, Any], where: str) -> Artefact:
    version = content.get("feature_version")
    if version != FEATURE_VERSION:
        raise ArtefactError(
            f"{where}: made for feature version {version!r:.40}, this Bitgear has {FEATURE_VERSION}; "
            "train it again with `bitgear classifier train`"
        )
    model, calibration = content.get("model"), content.get("calibration")
    name, date = content.get("name"), content.get("date")
    if not isinstance(model, dict) or not isinstance(calibration, dict):
        raise ArtefactError(f"{where}: `model` and `calibration` must be objects")
    if not isinstance(name, str) or not isinstance(date, str):
        raise ArtefactError(f"{where}: `name` and `date` must be strings")
    listed = content.get("segments")
    if listed is not None and not isinstance(listed, dict):
        raise ArtefactError(f"{where}: `segments` must be an object")
    # They stand in each decision and in logs.
    if not all(0 < len(text) <= _LONGEST_NAME and text.isprintable() for text in (name, date)):
        raise ArtefactError(f"{where}: `name` and `date` must be 1 to {_LONGEST_NAME} printable characters")
    _check_thresholds(content.get("thresholds"), where)
    kind, parameters = model.get("kind"), model.get("parameters")
    if not isinstance(kind, str) or not isinstance(parameters, dict):
        raise ArtefactError(f"{where}: `model` needs a `kind` and `parameters`")
    try:
        built = build(kind, parameters)
        made = Calibration.from_content(calibration)
        segments = Segments.from_content(listed) if isinstance(listed, dict) else None
    except ModelError as error:
        raise ArtefactError(f"{where}: {error}") from None
    except (OverflowError, RecursionError) as error:
        raise ArtefactError(f"{where}: holds numbers or lists that nothing can be made of: {error}") from None
    return Artefact(
        name=name,
        version=f"{name}-{date}-{content['sha256'][:8]}",
        kind=kind,
        model=built,
        calibration=made,
        content=content,
        segments=segments,
    )


def _check_thresholds(given: object, where: str) -> None:
    """Raise where `recommended` is not a mapping of precisions to risks in [0, 1]: requests are let through by it."""
    listed = given.get("recommended") if isinstance(given, dict) else None
    if not isinstance(listed, dict):
        raise ArtefactError(f"{where}: `thresholds` needs `recommended`")
    for precision, value in listed.items():
        if precision not in PRECISIONS:
            raise ArtefactError(
                f"{where}: thresholds: {precision[:40]!r} is no precision; known: {', '.join(PRECISIONS)}"
            )
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise ArtefactError(f"{where}: thresholds.{precision}: {value!r:.40} is not in [0, 1]")


def _no_constant(text: str) -> float:
    raise ArtefactError(f"{text} is not a number that an artefact may hold")

"""The classifier that serves: conversation, features, model, calibration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from classifier.artefact import FOLDER, Artefact, ArtefactError, read
from classifier.conversation import view
from classifier.features import Features, extract
from classifier.risks import Risks


class Trained:
    """A classifier read from an artefact. Nothing changes after it is made, so threads may share it."""

    __slots__ = ("artefact",)

    def __init__(self, artefact: Artefact) -> None:
        self.artefact = artefact

    @property
    def thresholds(self) -> Mapping[str, float]:
        """Return the thresholds that the artefact recommends, by precision."""
        recommended: Mapping[str, float] = self.artefact.content["thresholds"]["recommended"]
        return recommended

    def features(self, request: Mapping[str, object]) -> Features:
        """Return the features of a request."""
        return extract(view(request))

    def risk(self, request: Mapping[str, object]) -> Risks:
        """Return the risks of a request; see `Classifier`."""
        return self.risk_of(extract(view(request)))

    def risks(self, requests: Iterable[Mapping[str, object]]) -> list[Risks]:
        """Return the risks of many requests, in their order; for offline use."""
        return [self.risk(request) for request in requests]

    def risk_of(self, features: Features) -> Risks:
        """Return the risks of features that are already there."""
        artefact = self.artefact
        calibration = artefact.calibration
        z = calibration.standard(artefact.model.score(features), features)
        risks = calibration.probabilities(z, features)
        uncertainty = calibration.uncertainty(z, risks["int4"], features)
        if artefact.segments is not None:
            risks = artefact.segments.apply(risks, features)
        return Risks(risks, uncertainty, artefact.version)


def shipped() -> tuple[str, ...]:
    """Return the names that `load` knows without a file."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def load(model: str = "default", artefact: str | Path | None = None) -> Trained:
    """Return a classifier: `model` of those shipped with Bitgear, or the one in the file `artefact`.

    With a file, `model` must be `default` or the kind of the model in the file. Raises `ArtefactError` for an unknown name,
    and for a file that is missing, damaged, or made for another feature version.
    """
    if artefact is None:
        if model not in shipped():
            raise ArtefactError(f"unknown model {model!r}; shipped: {', '.join(shipped())}")
        return Trained(read(FOLDER / f"{model}.json"))
    found = read(Path(artefact))
    if model not in ("default", found.kind, found.name):
        raise ArtefactError(f"{artefact}: holds a model of kind {found.kind!r}, the configuration asks for {model!r}")
    return Trained(found)

"""The classifier: how likely each precision's answer to a request is worse than full precision's."""

from classifier.artefact import ArtefactError
from classifier.risks import PRECISIONS, Classifier, Risks
from classifier.scoring import load

__all__ = ["PRECISIONS", "ArtefactError", "Classifier", "Risks", "load"]

"""A linear model on the words of the conversation: the mean of their weights, each word counted once.

Easy words are the cheapest thing to append to a request, so the score is at least that of its first and of its last words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum, isfinite, sqrt

from classifier.features import Features
from classifier.models.base import ModelError, number

_SHOWN = 12
_MOST_ENDS = 200


@dataclass(frozen=True, slots=True)
class Words:
    """`intercept + sum(weight of each known word) / sqrt(number of known words + smoothing)`.

    The root is the length of the vector of words (L2 norm): a long prompt doesn't score by its length alone.
    """

    intercept: float
    smoothing: float
    weights: Mapping[bytes, float]
    """None is 0: such words are not known."""
    ends: int = 0
    """Words at either end whose score the whole's is held to; 0: none."""

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, object]) -> Words:
        """Rebuild from an artefact. Raises `ModelError`."""
        weights = parameters.get("weights")
        if not isinstance(weights, dict):
            raise ModelError(f"parameter 'weights': expected an object, found {type(weights).__name__}")
        for word, weight in weights.items():
            if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not isfinite(weight):
                raise ModelError(f"parameter 'weights': word {word!r:.40} has no finite number")
        smoothing = number(parameters, "smoothing")
        if smoothing <= 0:
            raise ModelError("parameter 'smoothing': must be above 0")
        ends = number(parameters, "ends")
        if ends != int(ends) or not 0 <= ends <= _MOST_ENDS:
            raise ModelError(f"parameter 'ends': expected a whole number up to {_MOST_ENDS}, found {ends}")
        known = {word.encode("utf-8"): float(weight) for word, weight in weights.items() if weight}
        return cls(number(parameters, "intercept"), smoothing, known, int(ends))

    def score(self, features: Features) -> float:
        """Return the words' score, or that of one end if it is higher; unknown words count for nothing."""
        score = self._of(features.words)
        size, sequence = self.ends, features.sequence
        if size and len(sequence) > size:
            score = max(score, self._of(frozenset(sequence[:size])), self._of(frozenset(sequence[-size:])))
        return score

    def _of(self, words: frozenset[bytes]) -> float:
        found = list(filter(None, map(self.weights.get, words)))
        # Summed exactly, because the order of a set of words may differ between processes.
        return self.intercept + fsum(found) / sqrt(len(found) + self.smoothing)

    def contributions(self, features: Features) -> dict[str, float]:
        """Return the parts of the words that count most, among those that decided."""
        sets, size, sequence = [features.words], self.ends, features.sequence
        if size and len(sequence) > size:
            sets += [frozenset(sequence[:size]), frozenset(sequence[-size:])]
        decided = max(sets, key=self._of)
        found = {word: self.weights[word] for word in decided if word in self.weights}
        norm = sqrt(len(found) + self.smoothing)
        most = sorted(found.items(), key=lambda item: (-abs(item[1]), item[0]))[:_SHOWN]
        return {f"'{word.decode('utf-8', 'replace')}'": weight / norm for word, weight in most}

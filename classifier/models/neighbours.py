"""The mean of the most similar training prompts' gains, similarity by shared words (TF-IDF cosine), in plain Python.

Milliseconds a request: for comparison, not for every request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nlargest
from math import sqrt

from classifier.features import Features
from classifier.models.base import ModelError, number, numbers

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Neighbours:
    """`sum(similarity * target) / (sum(similarity) + prior)` over the `nearest` most similar prompts."""

    nearest: int
    prior: float
    weights: Mapping[bytes, float]
    """Inverse document frequency by word."""
    postings: Mapping[bytes, tuple[tuple[int, float], ...]]
    """By word: the prompts that hold it, and the word's part of their unit vectors."""
    target: tuple[float, ...]

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, object]) -> Neighbours:
        """Rebuild from an artefact: `words`, `idf`, `rows` (lists of indices of words), `target`. Raises `ModelError`."""
        words, rows = parameters.get("words"), parameters.get("rows")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ModelError("parameter 'words': expected a list of strings")
        idf = numbers(parameters, "idf", len(words))
        if not isinstance(rows, list) or not rows:
            raise ModelError("parameter 'rows': expected a list of lists")
        target = numbers(parameters, "target", len(rows))
        postings: dict[bytes, list[tuple[int, float]]] = {word.encode(): [] for word in words}
        names = list(postings)
        for number_, row in enumerate(rows):
            if not isinstance(row, list) or not all(type(i) is int and 0 <= i < len(names) for i in row):
                raise ModelError(f"parameter 'rows': row {number_} must hold indices of words")
            length = sqrt(sum(idf[i] * idf[i] for i in row)) or 1.0
            for i in row:
                postings[names[i]].append((number_, idf[i] / length))
        nearest, prior = number(parameters, "nearest"), number(parameters, "prior")
        if nearest < 1 or prior <= 0:
            raise ModelError("parameters 'nearest' and 'prior' must be above 0")
        kept = {word: tuple(found) for word, found in postings.items()}
        return cls(int(nearest), prior, dict(zip(names, idf, strict=True)), kept, target)

    def score(self, features: Features) -> float:
        """Return the neighbours' mean, drawn to 0 by `prior`."""
        found = self._similar(features)
        total = sum(similarity for similarity, _ in found)
        return sum(similarity * self.target[row] for similarity, row in found) / (total + self.prior)

    def contributions(self, features: Features) -> dict[str, float]:
        """Return the part of the similarity that each word makes, times the score."""
        score = self.score(features)
        known = {word: self.weights[word] ** 2 for word in features.words if word in self.weights}
        total = sum(known.values()) or 1.0
        most = sorted(known.items(), key=lambda item: (-item[1], item[0]))[:_SHOWN]
        return {f"'{word.decode('utf-8', 'replace')}'": score * weight / total for word, weight in most}

    def _similar(self, features: Features) -> list[tuple[float, int]]:
        similarity: dict[int, float] = {}
        length = 0.0
        # In order of the words: sums of floats must not depend on the order of a set.
        for word in sorted(features.words):
            weight = self.weights.get(word)
            if weight is None:
                continue
            length += weight * weight
            for row, part in self.postings[word]:
                similarity[row] = similarity.get(row, 0.0) + weight * part
        scale = sqrt(length) or 1.0
        nearest = nlargest(self.nearest, ((value / scale, -row) for row, value in similarity.items()))
        return [(value, -row) for value, row in nearest]

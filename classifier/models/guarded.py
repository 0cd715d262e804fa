"""A model held to what it says of the conversation's pieces: easy text added to a hard request cannot hide it.

An attack on routers appends text that looks easy. The score is therefore at least that of each piece (`windows.windows`) less
a slack: pieces are short and their scores noisy, so a normal request's score is nearly always that of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from classifier.features import Features
from classifier.models.base import Model, ModelError, number
from classifier.windows import windows


@dataclass(frozen=True, slots=True)
class Guarded:
    """`max(score(whole), score(piece) - slack for each piece)`."""

    inner: Model
    kind: str
    """Of the inner model."""
    slack: float
    """In the inner model's units."""

    @classmethod
    def maker(cls, build: Callable[[str, Mapping[str, object]], Model]) -> Callable[[Mapping[str, object]], Guarded]:
        """Return the function that rebuilds a guarded model, given the one that rebuilds the inner one."""

        def from_parameters(parameters: Mapping[str, object]) -> Guarded:
            kind, inner = parameters.get("kind"), parameters.get("parameters")
            if not isinstance(kind, str) or not isinstance(inner, dict) or kind == "guarded":
                raise ModelError("a guarded model needs a `kind` (not `guarded`) and `parameters`")
            slack = number(parameters, "slack")
            if slack < 0:
                raise ModelError("parameter 'slack': must not be below 0")
            return cls(build(kind, inner), kind, slack)

        return from_parameters

    def score(self, features: Features) -> float:
        """Return the guarded score."""
        score = self.inner.score(features)
        for piece in windows(features):
            held = self.inner.score(piece) - self.slack
            if held > score:
                score = held
        return score

    def contributions(self, features: Features) -> dict[str, float]:
        """Return the parts of the piece that decided, with the slack where that is one."""
        decided, parts = self.inner.score(features), self.inner.contributions(features)
        for piece in windows(features):
            held = self.inner.score(piece) - self.slack
            if held > decided:
                decided, parts = held, {**self.inner.contributions(piece), "slack": -self.slack}
        return parts

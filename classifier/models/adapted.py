"""Another model's score, corrected by a linear function of the cheap features: what own traffic taught (`classifier.adapt`).

Features are clipped to the range in which the correction was learnt, so that nobody can push a score further than that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from classifier.features import NAMES, Features
from classifier.models.base import Model, ModelError, number
from classifier.models.linear import Linear


@dataclass(frozen=True, slots=True)
class Adapted:
    """`weight * clip((base - mean) / scale, -clip, clip) + linear(features)`."""

    base: Model
    mean: float
    scale: float
    clip: float
    weight: float
    linear: Linear

    @classmethod
    def maker(cls, build: Callable[[str, Mapping[str, object]], Model]) -> Callable[[Mapping[str, object]], Adapted]:
        """Return the function that rebuilds an adapted model, given the one that rebuilds its base."""

        def from_parameters(parameters: Mapping[str, object]) -> Adapted:
            base, linear = parameters.get("base"), parameters.get("linear")
            kind = base.get("kind") if isinstance(base, dict) else None
            inner = base.get("parameters") if isinstance(base, dict) else None
            if not isinstance(kind, str) or not isinstance(inner, dict) or kind == "adapted":
                raise ModelError("parameter 'base': needs a `kind` (not itself adapted) and `parameters`")
            if not isinstance(linear, dict):
                raise ModelError("parameter 'linear': expected an object")
            scale, clip, weight = number(parameters, "scale"), number(parameters, "clip"), number(parameters, "weight")
            if scale <= 0 or clip <= 0 or weight < 0:
                raise ModelError("scale and clip must be above 0, and weight not below it")
            mean = number(parameters, "mean")
            return cls(build(kind, inner), mean, scale, clip, weight, Linear.from_parameters(linear))

        return from_parameters

    def score(self, features: Features) -> float:
        """Return the corrected score."""
        z = (self.base.score(features) - self.mean) / self.scale
        return self.weight * min(max(z, -self.clip), self.clip) + self.linear.score(features)

    def base_score(self, features: Features) -> float:
        """Return the base's score."""
        return self.base.score(features)

    def contributions(self, features: Features) -> dict[str, float]:
        """Return the base's parts and the correction's, added up by feature."""
        part = self.weight / self.scale
        found = {name: value * part for name, value in self.base.contributions(features).items()}
        for name, value in self.linear.contributions(features).items():
            found[name] = found.get(name, 0.0) + value
        return {name: value for name, value in found.items() if value or name in NAMES}

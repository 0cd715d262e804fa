"""A weighted mean of other models' standardised scores: their errors differ, so the mean orders better than any."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from classifier.features import Features
from classifier.models.base import Model, ModelError, number

_MAX_MEMBERS = 8


@dataclass(frozen=True, slots=True)
class Blend:
    """`sum(weight * clip((score - mean) / scale, -3, 3))` over its members."""

    members: tuple[tuple[str, Model, float, float, float], ...]
    """Kind, model, mean, scale, weight."""

    @classmethod
    def maker(cls, build: Callable[[str, Mapping[str, object]], Model]) -> Callable[[Mapping[str, object]], Blend]:
        """Return the function that rebuilds a blend, given the one that rebuilds its members."""

        def from_parameters(parameters: Mapping[str, object]) -> Blend:
            listed = parameters.get("members")
            if not isinstance(listed, list) or not 0 < len(listed) <= _MAX_MEMBERS:
                raise ModelError(f"parameter 'members': expected 1 to {_MAX_MEMBERS} models, found {listed!r:.40}")
            members = []
            for item in listed:
                kind = item.get("kind") if isinstance(item, dict) else None
                inner = item.get("parameters") if isinstance(item, dict) else None
                if not isinstance(kind, str) or not isinstance(inner, dict) or kind == "blend":
                    raise ModelError("parameter 'members': each needs a `kind` (not `blend`) and `parameters`")
                scale = number(item, "scale")
                if scale <= 0:
                    raise ModelError(f"member {kind!r}: scale must be above 0")
                members.append((kind, build(kind, inner), number(item, "mean"), scale, number(item, "weight")))
            return cls(tuple(members))

        return from_parameters

    def score(self, features: Features) -> float:
        """Return the weighted mean."""
        total = 0.0
        for _, model, mean, scale, weight in self.members:
            z = (model.score(features) - mean) / scale
            total += weight * (-3.0 if z < -3.0 else 3.0 if z > 3.0 else z)
        return total

    def contributions(self, features: Features) -> dict[str, float]:
        """Return the members' parts, added up by feature."""
        parts: dict[str, float] = {}
        for _, model, _, scale, weight in self.members:
            for name, part in model.contributions(features).items():
                parts[name] = parts.get(name, 0.0) + weight * part / scale
        return parts

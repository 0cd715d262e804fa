"""The mean of the highest of other models' standardised scores.

Errors differ, so a mean orders better than any one. Only the highest count, so that text which makes one member believe in an
easy request buys nothing while others disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from classifier.features import Features
from classifier.models.base import Model, ModelError, number

_MAX_MEMBERS = 8
_CLIP = 3.0


@dataclass(frozen=True, slots=True)
class Blend:
    """Mean of the `kept` highest of `clip((score - mean) / scale, -3, 3)` over its members."""

    members: tuple[tuple[str, Model, float, float], ...]
    """Kind, model, mean, scale."""
    kept: int

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
                if not isinstance(kind, str) or not isinstance(inner, dict) or kind in ("blend", "guarded"):
                    raise ModelError("parameter 'members': each needs a `kind` (of a single model) and `parameters`")
                scale = number(item, "scale")
                if scale <= 0:
                    raise ModelError(f"member {kind!r}: scale must be above 0")
                members.append((kind, build(kind, inner), number(item, "mean"), scale))
            kept = number(parameters, "kept")
            if kept != int(kept) or not 0 < kept <= len(members):
                raise ModelError(f"parameter 'kept': expected 1 to {len(members)}, found {kept}")
            return cls(tuple(members), int(kept))

        return from_parameters

    def score(self, features: Features) -> float:
        """Return the mean of the highest."""
        scores = [(model.score(features) - mean) / scale for _, model, mean, scale in self.members]
        scores.sort()
        total = 0.0
        for z in scores[-self.kept :]:
            total += -_CLIP if z < -_CLIP else _CLIP if z > _CLIP else z
        return total / self.kept

    def contributions(self, features: Features) -> dict[str, float]:
        """Return the parts of the members that count, added up by feature."""
        ordered = sorted(self.members, key=lambda member: (member[1].score(features) - member[2]) / member[3])
        parts: dict[str, float] = {}
        for _, model, _, scale in ordered[-self.kept :]:
            for name, part in model.contributions(features).items():
                parts[name] = parts.get(name, 0.0) + part / scale / self.kept
        return parts

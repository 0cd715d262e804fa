"""A smooth maximum of other models' standardised scores: a request is hard when any of them finds it so.

Errors differ, so together they order better than any one. Text that makes one member believe in an easy request moves little
while the others disagree. And a floor that an attack on routers cannot reach: the score is never below that of a member that
added text cannot lower (`growing`), nor, where `ends` are given, below what beginnings and ends of the text get (`windows`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, log

from classifier.features import Features
from classifier.models.base import Model, ModelError, number, numbers
from classifier.windows import LEAST, windows

CLIP = 3.0
"""Largest standardised score of a member."""
_MAX_MEMBERS = 8
_MOST_SHARPNESS = 20.0
_MOST_ENDS = 4
_MADE_OF_OTHERS = frozenset(("blend", "guarded", "adapted"))
"""Kinds that are no member: each level would look at all ends of each end, so that the work grew beyond bounds."""
_NEVER_LOWERED = frozenset(("growing", "length"))
"""Members that added text can only raise: an end is not scored by them again, the whole's score stands."""


@dataclass(frozen=True, slots=True)
class Blend:
    """`log(mean(exp(sharpness * z))) / sharpness` with `z = clip((score - mean) / scale, -3, 3)` of each member.

    Sharpness near 0 makes it the mean, a large one the maximum. At least `z` of each member that added text cannot lower, and
    at least the same figure of each end, if there are `ends`.
    """

    members: tuple[tuple[str, Model, float, float], ...]
    """Kind, model, mean, scale."""
    sharpness: float
    ends: tuple[int, ...] = ()
    """Characters of the beginnings and ends that the score is held to."""

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
                if not isinstance(kind, str) or not isinstance(inner, dict) or kind in _MADE_OF_OTHERS:
                    raise ModelError("parameter 'members': each needs a `kind` (of a single model) and `parameters`")
                scale = number(item, "scale")
                if scale <= 0:
                    raise ModelError(f"member {kind!r}: scale must be above 0")
                members.append((kind, build(kind, inner), number(item, "mean"), scale))
            sharpness = number(parameters, "sharpness")
            if not 0 < sharpness <= _MOST_SHARPNESS:
                raise ModelError(
                    f"parameter 'sharpness': expected above 0, at most {_MOST_SHARPNESS}, found {sharpness}"
                )
            ends = numbers(parameters, "ends")
            if len(ends) > _MOST_ENDS or any(size != int(size) or size < LEAST for size in ends):
                raise ModelError(f"parameter 'ends': expected at most {_MOST_ENDS} whole numbers of at least {LEAST}")
            return cls(tuple(members), sharpness, tuple(map(int, ends)))

        return from_parameters

    def score(self, features: Features) -> float:
        """Return the smooth maximum or the floor; in [-3, 3]."""
        total, held, least = self._sums(features)
        for piece in windows(features, self.ends) if self.ends else ():
            found = held + self._sums(piece, whole=False)[0]
            if found > total:
                total = found
        return max(log(total / len(self.members)) / self.sharpness, least)

    def _sums(self, features: Features, whole: bool = True) -> tuple[float, float, float]:
        """The sum of the exponentials, the part of it by members that text cannot lower, and their highest `z`.

        Of a piece (`whole` false), the sum of the others alone: theirs stands as it is.
        """
        sharpness, total, held, least = self.sharpness, 0.0, 0.0, -CLIP
        for kind, model, mean, scale in self.members:
            steady = kind in _NEVER_LOWERED
            if steady and not whole:
                continue
            z = (model.score(features) - mean) / scale
            z = -CLIP if z < -CLIP else CLIP if z > CLIP else z
            pull = exp(sharpness * z)
            total += pull
            if steady:
                held += pull
                if z > least:
                    least = z
        return total, held, least

    def contributions(self, features: Features) -> dict[str, float]:
        """Return the parts of the members in what decided (the whole, an end, the floor), each by how much the score follows it."""
        total, held, least = self._sums(features)
        decided = features
        for piece in windows(features, self.ends):
            found = held + self._sums(piece, whole=False)[0]
            if found > total:
                total, decided = found, piece
        if log(total / len(self.members)) / self.sharpness < least:
            return self._floor(features)
        parts: dict[str, float] = {}
        for kind, model, mean, scale in self.members:
            seen = features if kind in _NEVER_LOWERED else decided
            z = (model.score(seen) - mean) / scale
            pull = exp(self.sharpness * max(-CLIP, min(z, CLIP))) / total
            for name, part in model.contributions(seen).items():
                parts[name] = parts.get(name, 0.0) + part / scale * pull
        return parts

    def _floor(self, features: Features) -> dict[str, float]:
        """The parts of the steady member that the score is held to."""
        steady = [member for member in self.members if member[0] in _NEVER_LOWERED]
        _, model, _, scale = max(steady, key=lambda member: (member[1].score(features) - member[2]) / member[3])
        return {name: part / scale for name, part in model.contributions(features).items()}

"""Chance, as a baseline: each request falls where a hash of its words says, so the same request always falls the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from statistics import NormalDist

from classifier.features import Features

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Random:
    """A standard normal number drawn by the conversation's text."""

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, object]) -> Random:
        """Rebuild from an artefact; there are no parameters."""
        return cls()

    def score(self, features: Features) -> float:
        """Return the draw: the same for the same text."""
        digest = blake2b(features.conversation.text.encode("utf-8", "replace"), digest_size=8).digest()
        return _NORMAL.inv_cdf((int.from_bytes(digest, "big") + 0.5) / 2**64 * (1 - 1e-9) + 5e-10)

    def contributions(self, features: Features) -> dict[str, float]:
        """Return nothing: no feature counts."""
        return {}

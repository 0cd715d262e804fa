"""What a classifier gives: one risk per precision, and how sure it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

PRECISIONS = ("fp8", "int8", "nvfp4", "mxfp4", "int4")
"""Precisions that carry a risk, in the order in which risk may only grow. Full precision (fp32, fp16, bf16) has none."""


@dataclass(frozen=True, slots=True)
class Risks:
    """One request's risks.

    `by_precision`: probability that the answer at this precision is worse than full precision's, in [0, 1]; it never falls
    from one name of `PRECISIONS` to the next. Precisions that are missing have risk 0.
    `uncertainty`: half the width of the 90% interval of the highest of these risks, in [0, 1]; wider for requests unlike
    the training data.
    `version`: which artefact said so.
    """

    by_precision: Mapping[str, float]
    uncertainty: float
    version: str


@runtime_checkable
class Classifier(Protocol):
    """Anything that scores requests. Pure and thread-safe: the same request always has the same risks."""

    @property
    def thresholds(self) -> Mapping[str, float]:
        """Highest risk by precision that its training recommends; on the scale of its own risks."""
        ...

    def risk(self, request: Mapping[str, object]) -> Risks:
        """Return the risks of a request: the parsed JSON body of a call to `/v1/...`. Never raises on its content."""
        ...

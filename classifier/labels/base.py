"""What labels compare: one prompt's answer at full precision and at a lower one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two answers to one prompt."""

    full_text: str
    text: str | None
    """None: it differs from `full_text`, and was not asked for."""
    task: str = "open"
    accepted: Sequence[str] = ()
    schema: Mapping[str, Any] | None = None
    full_logprobs: Sequence[float] = ()
    """Of full precision's own tokens, natural logarithm."""
    logprobs: Sequence[float] | None = None
    """Of the same tokens under the variant; None: not scored."""
    ranks: Sequence[int] | None = None
    """Of the same tokens under the variant; 1: its own greedy choice."""
    judged: float | None = None
    """A judge's verdict: 1 full precision's answer is better, 0 as good, -1 the variant's is better."""
    feedback: float | None = None
    """What users said: quality lost against full precision, in [-1, 1]."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What a label says of one comparison."""

    quality_full: float
    """Quality of full precision's answer, in [0, 1]."""
    quality: float
    """Quality of the variant's."""
    worse: bool
    """The event whose probability is the risk."""
    target: float
    """What a model is trained on: the higher, the worse; continuous where the label is."""

    @property
    def loss(self) -> float:
        """Return the quality lost."""
        return self.quality_full - self.quality


class Label(Protocol):
    """A comparison to a loss; None where this label cannot tell. Pure."""

    def __call__(self, pair: Comparison) -> Loss | None:
        """Return the loss."""
        ...

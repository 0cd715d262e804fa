"""What is looked at when a request has ended, noted before it was sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from router.cache.capture import Capture


class Sample(NamedTuple):
    """A request that was drawn for comparison before it was sent."""

    body: Mapping[str, Any]
    path: bytes
    kind: str
    capture: Capture
    """Where the answer's bytes are."""
    propensity: float
    """Probability with which it was drawn."""


class Watch(NamedTuple):
    """One request's marks."""

    digest: int | None
    """By which the same request is recognised."""
    sample: Sample | None

    @property
    def capture(self) -> Capture | None:
        """The sample's, if it is one."""
        return self.sample.capture if self.sample is not None else None

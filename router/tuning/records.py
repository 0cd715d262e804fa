"""One recorded request as a tuning job sees it: decision, outcome, and what is known of its quality."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Option(NamedTuple):
    """How one variant stood in the decision."""

    variant: str
    precision: str
    rank: float
    """Orders precisions: the higher, the more precise."""
    live: bool
    fits: bool
    risk: float
    threshold: float
    ttft_s: float
    """Predicted at that moment."""
    e2e_s: float
    propensity: float
    """Probability with which the logging policy took it; they sum to 1 over the variants of a served request."""


class Label(NamedTuple):
    """One statement about the quality of an answer."""

    source: str
    """`thumbs`, `score`, `metric:NAME`, `shadow:JUDGE`, `implicit:NAME`."""
    value: float
    """Quality in [0, 1]; of a shadow pair: how good the variant's answer is when full precision's counts as `reference`."""
    reference: float | None = None
    """Quality of the full-precision answer to the same request, where both are known."""
    key: str = ""
    """Digest of the API key that gave it; empty for Bitgear's own judges."""
    at: float = 0.0
    """Unix time, seconds."""
    variant: str = ""
    """Variant that it speaks of; empty: the record's own."""
    propensity: float = 1.0
    """Probability with which the request was drawn for this label, where it was drawn."""


class Record(NamedTuple):
    """One request."""

    id: str
    at: float
    """Unix time of its end, seconds."""
    group: str
    scenario: str
    version: str
    """Version of the policy that decided, as in its event."""
    arm: str
    """`stable`, `canary`."""
    explored: bool
    variant: str
    options: tuple[Option, ...]
    risks: Mapping[str, float]
    prompt_tokens: int
    completion_tokens: int
    ttft_s: float | None
    """Measured; None where the answer did not stream."""
    e2e_s: float
    ok: bool
    labels: tuple[Label, ...] = ()
    ttft_target_s: float | None = None
    e2e_target_s: float | None = None
    others: tuple[Label, ...] = ()
    """Labels of variants that were only asked in its shadow: full precision answered, and a lower one was compared."""
    weight: float = 1.0
    """How many requests it stands for: 1 over the probability with which its event was kept."""

"""Segments of traffic, and what was proven about them: some may go down whole, some may not, in between each prompt decides.

A request's segment is read from features that are computed anyway: language, kind of work, length, and whether the answer must
fit a schema or may call tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from classifier.features import NAMES, Features
from classifier.models.base import ModelError, numbers
from classifier.risks import PRECISIONS

LANGUAGES = ("en", "zh", "other")
KINDS = ("mathematics", "code", "reasoning", "writing", "general")
LENGTHS = ("short", "medium", "long")
VERDICTS = ("non_inferior", "undecided", "inferior")
LIKE = {"fp8": "int8", "nvfp4": "int4", "mxfp4": "int4"}
"""Which precision speaks for one that was not tried."""

_HAN = NAMES.index("han_share")
_OTHER = NAMES.index("other_script_share")
_TOKENS = NAMES.index("log_tokens")
_CUES = tuple(
    (NAMES.index(f"cue_{cue}"), kind)
    for cue, kind in (
        ("mathematics", "mathematics"),
        ("quantities", "mathematics"),
        ("code", "code"),
        ("reasoning", "reasoning"),
        ("writing", "writing"),
        ("text_work", "writing"),
    )
)
_LEAST_CUE = 1.0
"""`log1p` of cues: two of a kind make it one."""
_MEDIUM = 4.174
"""`log1p(64)` tokens."""
_LONG = 6.24
"""`log1p(512)` tokens."""


def parts_of(features: Features) -> tuple[str, str, str, str]:
    """Return language, kind of work, length and `structured` or `plain`."""
    vector = features.vector
    language = "zh" if vector[_HAN] > 0.2 else "other" if vector[_OTHER] > 0.2 else "en"
    kind, most = "general", _LEAST_CUE
    for index, name in _CUES:
        if vector[index] > most:
            kind, most = name, vector[index]
    tokens = vector[_TOKENS]
    length = "short" if tokens < _MEDIUM else "medium" if tokens < _LONG else "long"
    return language, kind, length, "structured" if features.conversation.structured else "plain"


def segment_of(features: Features) -> str:
    """Return a request's segment, for example `zh/mathematics/short/plain`."""
    return "/".join(parts_of(features))


@dataclass(frozen=True, slots=True)
class Segments:
    """What an artefact knows of its segments. Rows hold one entry per name in `PRECISIONS`."""

    decided: Mapping[str, tuple[float | None, ...]]
    """By segment: risk 0 where proven non-inferior, 1 where proven inferior, None where nothing is proven."""
    rates: Mapping[str, tuple[float, ...]]
    """By segment: mean risk."""
    overall: tuple[float, ...]
    """Mean risk of a segment that was not seen."""
    per_prompt: bool
    """Whether the per-prompt risk is worth more than the segment's mean; if not, the mean stands for it."""

    @classmethod
    def from_content(cls, content: Mapping[str, object]) -> Segments:
        """Rebuild from an artefact's `segments`. Raises `ModelError`."""
        size = len(PRECISIONS)
        cells, per_prompt = content.get("cells"), content.get("per_prompt")
        if not isinstance(cells, dict) or not isinstance(per_prompt, bool):
            raise ModelError("segments: `cells` must be an object and `per_prompt` true or false")
        decided, rates = {}, {}
        for name, cell in cells.items():
            if not isinstance(cell, dict):
                raise ModelError(f"segments: {name!r:.60} must be an object")
            rates[name] = _rates(cell, "rates")
            verdicts = cell.get("verdicts")
            if not isinstance(verdicts, list) or len(verdicts) != size or any(v not in VERDICTS for v in verdicts):
                raise ModelError(f"segments: {name!r:.60} needs {size} verdicts of {', '.join(VERDICTS)}")
            decided[name] = forced(verdicts)
        return cls(decided, rates, _rates(content, "overall"), per_prompt)

    def apply(self, risks: Mapping[str, float], features: Features) -> dict[str, float]:
        """Return the risks after what is proven of the request's segment."""
        segment = segment_of(features)
        found = list(risks.values()) if self.per_prompt else list(self.rates.get(segment, self.overall))
        row = self.decided.get(segment)
        if row is not None:
            # A proven 0 may not lift the next, nor a proven 1 be lowered: rows are in order, so what stands between is kept.
            found = [own if proven is None else proven for own, proven in zip(found, row, strict=True)]
        return dict(zip(PRECISIONS, found, strict=True))


def forced(verdicts: list[str]) -> tuple[float | None, ...]:
    """Return 0, 1 or None per precision, so that risks still never fall from one precision to the next.

    What holds for a precision holds for those above it when it is harmless, and for those below it when it is harmful;
    where both are claimed, harm wins.
    """
    row: list[float | None] = [{"non_inferior": 0.0, "inferior": 1.0}.get(verdict) for verdict in verdicts]
    harmful = next((at for at, value in enumerate(row) if value == 1.0), len(row))
    harmless = max((at for at, value in enumerate(row[:harmful]) if value == 0.0), default=-1)
    return tuple(0.0 if at <= harmless else 1.0 if at >= harmful else None for at in range(len(row)))


def _rates(content: Mapping[str, object], name: str) -> tuple[float, ...]:
    found = numbers(content, name, len(PRECISIONS))
    if list(found) != sorted(found) or not 0 <= found[0] <= found[-1] <= 1:
        raise ModelError(f"segments: {name} must not fall along {', '.join(PRECISIONS)}, and stay in [0, 1]")
    return found

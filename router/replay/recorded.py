"""From a recorded event back to what its decision was made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from router.decision.types import Predicted, RequestFacts, VariantState

_ROW = 12
"""Figures of a candidate in an event; see `router/telemetry/telemetry.py`."""


class NotReplayableError(ValueError):
    """An event that no decision can be made from again; the message is a short reason, one of few."""


class Recorded(NamedTuple):
    """One decided request."""

    id: str
    at: float
    """Unix time of its end, seconds."""
    group: str
    scenario: str
    facts: RequestFacts
    risks: Mapping[str, float]
    variants: tuple[VariantState, ...]
    """As they stood then: their predicted times and costs are the recorded ones."""
    generates: bool
    """Whether its answer was generated; else it is full precision's whatever the policy."""
    may_explore: bool
    """Not after a failed attempt."""
    draw: float
    dice: float
    variant: str | None
    """The recorded choice."""
    reason: str
    weight: float = 1.0
    """How many requests it stands for: 1 over the probability with which its event was kept."""


def recorded(event: Mapping[str, Any]) -> Recorded:
    """Return what the event's decision was made of. Raises NotReplayableError."""
    if event.get("reason") == "cached":
        raise NotReplayableError("answered from the cache")
    if "candidates" not in event or "request" not in event or "group" not in event:
        raise NotReplayableError("holds no decision, or one of an older version")
    try:
        return _recorded(event)
    except NotReplayableError:
        raise
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        raise NotReplayableError("is damaged") from None


def _recorded(event: Mapping[str, Any]) -> Recorded:
    rows = event["candidates"]
    if any(len(row) < _ROW for row in rows):
        raise NotReplayableError("holds no decision, or one of an older version")
    lengths = event.get("max_model_lens") or [0] * len(rows)
    variants = tuple(_variant(row, length) for row, length in zip(rows, lengths, strict=True))
    reason = _text(event["reason"])
    # The variant of an event is the one that answered last; what was chosen is the same, or nothing.
    variant = event["variant"] if reason not in _NOTHING else None
    if variant is not None and variant not in {v.name for v in variants}:
        raise ValueError("a variant that was no candidate")
    return Recorded(
        id=_text(event["id"]),
        at=_figure(event["t"]),
        group=_text(event["group"]),
        scenario=_text(event["scenario"]),
        facts=_facts(*event["request"]),
        risks={_text(name): _figure(risk, 1.0) for name, risk in event["risks"].items()},
        variants=variants,
        generates=_flag(event.get("generates", True)),
        may_explore=_count(event["attempts"]) <= 1,
        draw=_figure(event["draw"], 1.0),
        dice=_figure(event["dice"], 1.0),
        variant=variant,
        reason=reason,
        weight=1.0 / _share(event.get("sampled", 1.0)),
    )


def _variant(row: Sequence[Any], length: int | None) -> VariantState:
    _figure(row[2], 1.0)
    return VariantState(
        name=_text(row[0]),
        precision=_text(row[6]),
        rank=_figure(row[7]),
        live=_flag(row[1]),
        last_resort=_flag(row[9]),
        # A limit is only needed where the request exceeded it.
        max_model_len=None if _flag(row[8]) else _count(length or 0),
        predicted=Predicted(_endless(row[4]), _endless(row[5]), _endless(row[10])),
    )


def _facts(
    prompt: int,
    output: int,
    least: int = 0,
    max_tokens: int | None = None,
    pin: str | None = None,
    max_risk: float | None = None,
    long_output: int = 0,
) -> RequestFacts:
    return RequestFacts(
        _count(prompt),
        _count(output),
        _count(least),
        None if max_tokens is None else _count(max_tokens),
        None if pin is None else _text(pin),
        None if max_risk is None else _figure(max_risk, 1.0),
        _count(long_output),
    )


_NOTHING = frozenset({"none_live", "pinned_unavailable", "max_risk_unavailable", "overloaded"})


# What a proxy would not have written is told, not turned into something that decides.
def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("neither true nor false")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("not a count")
    return value


def _figure(value: Any, most: float = math.inf) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= most:
        raise ValueError("not a figure, or out of its range")
    return float(value)


def _share(value: Any) -> float:
    if _figure(value, 1.0) == 0.0:
        raise ValueError("not a probability")
    return float(value)


def _endless(value: Any) -> float:
    # JSON has no infinity: it is written as null.
    return math.inf if value is None else _figure(value)

"""From a recorded event back to what its decision was made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
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
    variants = tuple(
        VariantState(
            name=str(row[0]),
            precision=str(row[6]),
            rank=float(row[7]),
            live=bool(row[1]),
            last_resort=bool(row[9]),
            # A limit is only needed where the request exceeded it.
            max_model_len=None if row[8] else int(limit or 0),
            predicted=Predicted(_number(row[4]), _number(row[5]), _number(row[10])),
        )
        for row, limit in zip(rows, lengths, strict=True)
    )
    return Recorded(
        id=str(event["id"]),
        at=float(event["t"]),
        group=str(event["group"]),
        scenario=str(event["scenario"]),
        facts=RequestFacts(*event["request"]),
        risks={str(k): float(v) for k, v in event["risks"].items()},
        variants=variants,
        generates=bool(event.get("generates", True)),
        may_explore=int(event["attempts"]) <= 1,
        draw=float(event["draw"]),
        dice=float(event["dice"]),
        # The variant of an event is the one that answered last; what was chosen is the same, or nothing.
        variant=event["variant"] if event["reason"] not in _NOTHING else None,
        reason=str(event["reason"]),
    )


_NOTHING = frozenset({"none_live", "pinned_unavailable", "max_risk_unavailable", "overloaded"})


def _number(value: float | None) -> float:
    # JSON has no infinity: it is written as null.
    return math.inf if value is None else float(value)

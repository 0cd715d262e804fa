"""The pairs of answers from which a classifier may learn: those of the feedback stream that hold numbers of their request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson
from redis.asyncio import Redis

from classifier.features import NAMES
from router.tuning.dataset import newest_first

_LARGEST = 1e9
"""Of scores and features: what is further away would drown all others."""


class LearntPair(NamedTuple):
    """One pair: how much worse the lower precision's answer was, and the request's numbers; see `classifier.adapt.Seen`."""

    precision: str
    worse: float
    risk: float
    score: float
    vector: tuple[float, ...]
    weight: float


class Pairs(NamedTuple):
    """What was read."""

    pairs: list[LearntPair]
    """Newest first."""
    others: int
    """Pairs that another classifier judged: their scores mean something else."""
    broken: int


async def read_pairs(
    redis: Redis, *, group: str, classifier: str, since: float, limit: int, stream: str = "bitgear:feedback"
) -> Pairs:
    """Return a group's newest `limit` pairs since the Unix time `since` that the classifier of this version saw.

    Raises RedisError, OSError.
    """
    found: list[LearntPair] = []
    others = broken = 0
    async for raw in newest_first(redis, stream, b"feedback", since):
        try:
            entry = orjson.loads(raw)
            seen = entry.get("seen")
            if seen is None or entry["group"] != group:
                continue
            if seen["by"] != classifier:
                others += 1
                continue
            found.append(_pair(entry, seen))
        except (ValueError, KeyError, TypeError, AttributeError):
            broken += 1
            continue
        if len(found) >= limit:
            break
    return Pairs(found, others, broken)


def _pair(entry: Mapping[str, Any], seen: Mapping[str, Any]) -> LearntPair:
    value, reference = float(entry["value"]), float(entry["reference"])
    drawn, vector = float(entry["shadow_propensity"]), tuple(float(v) for v in seen["vector"])
    risk, score = float(seen["risk"]), float(seen["score"])
    if not (0.0 <= value <= 1.0 and 0.0 <= reference <= 1.0 and 0.0 < drawn <= 1.0 and 0.0 <= risk <= 1.0):
        raise ValueError("out of range")
    if len(vector) != len(NAMES):
        raise ValueError("features of another version")
    if not all(abs(number) <= _LARGEST for number in (score, *vector)):
        raise ValueError("no features that a request can have")
    worse = max(0.0, reference - value)
    return LearntPair(str(seen["precision"]), worse, risk, score, vector, 1.0 / drawn)

"""From the streams of events and feedback to the records that a tuning job reads: bounded, and broken entries counted."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

import orjson
from redis.asyncio import Redis

from router.tuning.records import Label, Option, Record

_BATCH = 200
"""Entries read at once; parsing them holds the loop for some milliseconds."""
_LABELS_PER_RECORD = 4
_NOT_DECIDED = frozenset(
    {"cached", "pinned", "pinned_unavailable", "last_resort", "none_live", "max_risk_unavailable", "too_long_for_all"}
)
"""Reasons under which no threshold had a say."""
_CANDIDATE = 12


class Records(NamedTuple):
    """What was read."""

    records: list[Record]
    """Oldest first."""
    events: int
    """Events looked at."""
    skipped: int
    """Of these: other groups, answers from the cache, pins, requests that were the client's own mistake."""
    events_broken: int
    labels: int
    """Labels that found their record."""
    labels_unmatched: int
    """Labels whose request is not among the records: older, of another group, or trimmed."""
    labels_broken: int
    truncated: bool
    """Whether there was more within the time than `limit`."""


async def read_records(
    redis: Redis,
    *,
    group: str,
    since: float,
    limit: int,
    events: str = "bitgear:events",
    feedback: str = "bitgear:feedback",
) -> Records:
    """Return the newest `limit` decided requests of a group since the Unix time `since`, with what is known of them.

    A label may have been written before its event or after it; of several from one source and key the last one holds.
    Raises RedisError, OSError.
    """
    found: list[Record] = []
    places: dict[tuple[str, str, float], int] = {}
    looked = skipped = broken = 0
    truncated = False
    async for raw in newest_first(redis, events, b"event", since):
        if len(found) >= limit:
            truncated = True
            break
        looked += 1
        try:
            event = orjson.loads(raw)
            record = _record(event) if _decided(event, group) else None
            place = _place(event)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            broken += 1
            continue
        if record is None:
            skipped += 1
        elif record.at >= since:
            places[place] = len(found)
            found.append(record)
    labels, unmatched, labels_broken = await _labels(redis, feedback, since, places, limit)
    records = [_with(r, labels[i]) if i in labels else r for i, r in enumerate(found)]
    records.reverse()
    told = sum(len(some) for some in labels.values())
    return Records(records, looked, skipped, broken, told, unmatched, labels_broken, truncated)


def _with(record: Record, labels: list[Label]) -> Record:
    own = tuple(label for label in labels if not label.variant)
    return record._replace(labels=own, others=tuple(label for label in labels if label.variant))


async def _labels(
    redis: Redis, stream: str, since: float, places: Mapping[tuple[str, str, float], int], limit: int
) -> tuple[dict[int, list[Label]], int, int]:
    labels: dict[int, list[Label]] = {}
    seen: set[tuple[int, str, str, str]] = set()
    unmatched = broken = looked = 0
    async for raw in newest_first(redis, stream, b"feedback", since):
        looked += 1
        if looked > limit * _LABELS_PER_RECORD:
            break
        try:
            entry = orjson.loads(raw)
            label = _label(entry)
            index = places.get(_place(entry))
        except (ValueError, KeyError, TypeError, AttributeError):
            broken += 1
            continue
        if index is None:
            unmatched += 1
        elif (place := (index, label.source, label.key, label.variant)) not in seen:
            seen.add(place)
            labels.setdefault(index, []).append(label)
    return labels, unmatched, broken


async def newest_first(redis: Redis, stream: str, field: bytes, since: float) -> AsyncIterator[bytes]:
    """Yield one field of a stream's entries since a Unix time, the newest first. Raises RedisError, OSError."""
    end, least = "+", f"{max(0, math.floor(since * 1000))}-0"
    while True:
        batch: Any = await redis.xrevrange(stream, end, least, count=_BATCH)
        for _, fields in batch:
            value = fields.get(field, fields.get(field.decode(), b""))
            yield value if isinstance(value, bytes) else str(value).encode()
        if len(batch) < _BATCH:
            return
        last = batch[-1][0]
        end = f"({last.decode() if isinstance(last, bytes) else last}"
        await asyncio.sleep(0)


def _place(entry: Mapping[str, Any]) -> tuple[str, str, float]:
    # Clients may choose ids, and choose one twice: tenant and time tell whose and which.
    return str(entry["id"]), str(entry.get("tenant") or ""), float(entry["t"])


def _decided(event: Mapping[str, Any], group: str) -> bool:
    if event["group"] != group or event["reason"] in _NOT_DECIDED or event["variant"] is None:
        return False
    status = event["status"]
    return bool(status < 400 or status >= 499)


def _record(event: Mapping[str, Any]) -> Record:
    targets = event.get("targets") or (None, None)
    ttft, error, status = event["ttft_ms"], event["error"], event["status"]
    return Record(
        id=event["id"],
        at=float(event["t"]),
        group=event["group"],
        scenario=event["scenario"],
        version=event["policy"],
        arm=event["arm"],
        explored=bool(event["explored"]),
        variant=event["variant"],
        options=tuple(_option(row) for row in event["candidates"]),
        risks={name: float(risk) for name, risk in event["risks"].items()},
        prompt_tokens=int(event["prompt_tokens"] or 0),
        completion_tokens=int(event["completion_tokens"] or 0),
        ttft_s=None if ttft is None else ttft / 1000,
        e2e_s=event["e2e_ms"] / 1000,
        ok=error is None and 200 <= status < 300,
        ttft_target_s=targets[0],
        e2e_target_s=targets[1],
        weight=1.0 / _kept(event),
    )


def _kept(event: Mapping[str, Any]) -> float:
    kept = float(event.get("sampled", 1.0))
    if not 0.0 < kept <= 1.0:
        raise ValueError("not a probability")
    return kept


def _option(row: list[Any]) -> Option:
    if len(row) < _CANDIDATE:
        raise ValueError("an event of an older version")
    variant, live, risk, threshold, ttft_s, e2e_s, precision, rank, fits, _, _, propensity = row[:_CANDIDATE]
    return Option(
        variant=variant,
        precision=precision,
        rank=float(rank),
        live=bool(live),
        fits=bool(fits),
        risk=float(risk),
        threshold=float(threshold),
        # JSON has no infinity: what is endless was written as null.
        ttft_s=math.inf if ttft_s is None else float(ttft_s),
        e2e_s=math.inf if e2e_s is None else float(e2e_s),
        propensity=float(propensity),
    )


def _label(entry: Mapping[str, Any]) -> Label:
    value, reference = float(entry["value"]), entry.get("reference")
    if not 0.0 <= value <= 1.0 or not (reference is None or 0.0 <= float(reference) <= 1.0):
        raise ValueError("not a quality")
    source, key, variant = entry["source"], entry["key"], entry.get("of") or ""
    if not isinstance(source, str) or not isinstance(key, str) or not isinstance(variant, str):
        raise TypeError("source, key and variant are strings")
    drawn = float(entry.get("shadow_propensity") or 1.0)
    if not 0.0 < drawn <= 1.0:
        raise ValueError("not a probability")
    return Label(
        source, value, None if reference is None else float(reference), key, float(entry["at"]), variant, drawn
    )

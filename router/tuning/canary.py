"""A canary on trial: promote, roll back, or go on. Pure; the tests hold at whatever moment one looks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from router.config.loop import TuningConfig
from router.tuning.evidence import Piece, gather
from router.tuning.records import Record
from router.tuning.replay import Facts
from router.tuning.sequential import Bet, confidence_sequence

LATENCY_SLACK = 0.05
"""A canary may be in time for so much less of its requests."""

Verdict = Literal["promote", "rollback", "continue"]


class Trial(NamedTuple):
    """How a canary stands."""

    verdict: Verdict
    reason: str
    requests: int
    labels: int
    quality: tuple[float, float, float]
    """Mean difference from full precision, and its confidence sequence."""
    in_time: tuple[float, float]
    """Share of requests in time: canary, stable."""


class Stretch(NamedTuple):
    """The records by which a trial is judged: from its beginning on, or from where they began to be lost."""

    since: float
    """Requests that began after this count, Unix seconds."""
    number: int
    """How many stretches were given up before."""
    first: str
    """Its first record; empty: there is none yet."""


_FIRST_SHARE = 0.8
"""Share of the level that the first stretch may spend; hardly a trial has another."""


def stretch(records: Sequence[Record], began: float, now: float, told: Sequence[Any] | None) -> Stretch:
    """Return the stretch for this look; `told` is that of the last one.

    A test may be looked at at any time as long as each look adds to what the ones before saw. Under much traffic a trial's
    first records are trimmed, or more than a job reads: what is left is then no longer that sequence, and a test on a window
    that moves on is a new one at each look. So the stretch is given up, and another one begins now.
    """
    since, number, first = told if told is not None else (began, 0, "")
    record = next((r for r in records if r.at - r.e2e_s >= since), None)
    name = f"{record.id} {record.at}" if record is not None else ""
    if first and name != first:
        return Stretch(now, number + 1, "")
    return Stretch(since, number, name)


def level(alpha: float, number: int) -> float:
    """Return the level of a stretch: those of all stretches add up to `alpha`."""
    return alpha * (_FIRST_SHARE if number == 0 else (1.0 - _FIRST_SHARE) / 2**number)


def judge(
    records: Sequence[Record],
    facts: Facts,
    settings: TuningConfig,
    *,
    since: float,
    now: float,
    pooled_holds: bool | None = None,
    began: float | None = None,
    number: int = 0,
) -> Trial:
    """Judge the canary by the requests that began after `since` (Unix seconds): those of a `Stretch` and its number.

    `began`: when the trial did, where that was before.

    Quality against full precision: a bet against "within the margin" that wins rolls back; a bet against "worse than
    the margin" that wins promotes. So does `pooled_holds`: the estimate on all evidence, window and canary together, at
    a level that allows for its looks; both together promote wrongly with the level's probability at most. In time: paired with the stable request that ended nearest before.
    """
    mine = [r for r in records if r.at - r.e2e_s >= since]
    trial = [r for r in mine if r.arm == "canary"]
    alpha = level(1.0 - settings.confidence, number)
    evidence = gather(mine, facts.reference, settings.max_weight_per_key)
    null = -settings.margin * evidence.reference_level
    values = observations(mine, evidence.pieces, facts, arm="canary")
    labels = sum(1 for p in evidence.pieces if p.served and mine[p.record].arm == "canary")
    good, bad = Bet(null, -1.0, 1.0, above=True), Bet(null, -1.0, 1.0, above=False)
    for value, weight in values:
        # A light label says little: it lies near the null, whatever it says.
        told = null + weight * (value - null)
        good.add(told)
        bad.add(told)
    pairs = _pairs(mine)
    late = Bet(-LATENCY_SLACK, -1.0, 1.0, above=False)
    for canary_in_time, stable_in_time in pairs:
        late.add(float(canary_in_time) - float(stable_in_time))
    in_time = (_share([timely(r) for r in trial]), _share([timely(r) for r in mine if r.arm != "canary"]))
    mean = sum(v * w for v, w in values) / max(1e-9, sum(w for _, w in values))
    band = (
        confidence_sequence((null + w * (v - null) for v, w in values), -1.0, 1.0, alpha, 40) if values else (-1.0, 1.0)
    )
    told_so_far = Trial("continue", "", len(trial), labels, (mean, *band), in_time)
    if bad.won(alpha):
        return told_so_far._replace(
            verdict="rollback", reason=f"quality {mean:+.4f} against full precision, bound {null:+.4f}"
        )
    if late.won(alpha):
        return told_so_far._replace(
            verdict="rollback", reason=f"{in_time[0]:.1%} in time, the others {in_time[1]:.1%} at the same moments"
        )
    enough = len(trial) >= settings.canary_min_records
    # Half of the level: the other half is that of the looks at all evidence.
    if enough and good.won(alpha / 2):
        return told_so_far._replace(verdict="promote", reason=f"quality {mean:+.4f} is proven within {null:+.4f}")
    if enough and pooled_holds and mean >= null:
        return told_so_far._replace(
            verdict="promote", reason=f"all evidence together keeps the bound, the canary's own mean is {mean:+.4f}"
        )
    # A clock that was set back must not prolong it: at most it lasts twice as long.
    lasted = now - (since if began is None else began)
    if abs(lasted) > settings.canary_max_s:
        return told_so_far._replace(
            verdict="rollback",
            reason=f"undecided after {lasted:.0f} s with {len(trial)} requests, {labels} labels",
        )
    return told_so_far._replace(reason=f"{len(trial)} requests, {labels} labels so far")


def observations(
    records: Sequence[Record], pieces: Sequence[Piece], facts: Facts, *, arm: str
) -> list[tuple[float, float]]:
    """Return an arm's (difference, weight) in the order in which they became known.

    A request that full precision answered differs by nothing; such requests count at the rate at which the others
    were labelled, chosen by their id. Answers of full precision's shadow were not served and say nothing of the arm.
    """
    lower = [r for r in records if r.arm == arm and r.variant not in facts.reference]
    best: dict[int, Piece] = {}
    for piece in pieces:
        if piece.served and records[piece.record].arm == arm and (piece.record not in best or piece.kind == "paired"):
            best[piece.record] = piece
    if not best or not lower:
        return []
    # Drawn more often than the others, a label counts so much less (inverse propensity, over the largest).
    least = min(p.propensity for p in best.values())
    rate = sum(least / p.propensity for p in best.values()) / len(lower)
    timed: list[tuple[float, float, float]] = []
    for index, piece in best.items():
        record = records[index]
        timed.append(
            (
                max([record.at, *(label.at for label in record.labels)]),
                piece.difference,
                piece.weight * least / piece.propensity,
            )
        )
    for record in records:
        if record.arm == arm and record.variant in facts.reference and _drawn(record.id) < rate:
            timed.append((record.at, 0.0, 1.0))
    return [(value, weight) for _, value, weight in sorted(timed)]


def timely(record: Record) -> bool:
    """Return whether a request was answered and met its targets."""
    first = record.ttft_target_s is None or record.ttft_s is None or record.ttft_s <= record.ttft_target_s
    return record.ok and first and (record.e2e_target_s is None or record.e2e_s <= record.e2e_target_s)


def _pairs(records: Sequence[Record]) -> list[tuple[bool, bool]]:
    found: list[tuple[bool, bool]] = []
    before: Record | None = None
    for record in sorted(records, key=lambda r: r.at):
        if record.arm != "canary":
            before = record
        elif before is not None:
            found.append((timely(record), timely(before)))
            # Each stable request is compared once.
            before = None
    return found


def _drawn(name: str) -> float:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "big") / 2**32


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values) if values else 1.0


def told(trial: Trial) -> Mapping[str, object]:
    """Return a trial as a report's plain values."""
    return {**trial._asdict(), "quality": list(trial.quality), "in_time": list(trial.in_time)}

"""Watching what serves now: a variant whose quality falls, a bound that breaks, a speed that changes. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Literal, NamedTuple

from router.config.loop import TuningConfig
from router.tuning.canary import observations
from router.tuning.evidence import gather
from router.tuning.load_model import Curve, Load, Thinned
from router.tuning.records import Record
from router.tuning.replay import Facts
from router.tuning.sequential import Detector

ALARM = 1e-5
"""False alarms of a detector are at least 100,000 labels apart on average."""
SLOWER = 1.5
"""A variant whose answers take this many times what the last job's curve says (or the inverse) has changed speed."""
_RECENT = 60


class Alarm(NamedTuple):
    """Something changed."""

    kind: Literal["variant", "bound", "speed"]
    variant: str
    """Empty for the bound of the whole."""
    reason: str
    labels: int
    """How many labels it took."""


def watch(
    records: Sequence[Record],
    facts: Facts,
    settings: TuningConfig,
    expected: Mapping[str, Sequence[float]],
    curves: Mapping[str, Curve],
) -> list[Alarm]:
    """Return what the records since the last change tell.

    `expected`: per variant the (mean, lower) difference from full precision that the last job saw. Only paired labels
    watch quality: one key's feedback cannot stop a variant.
    """
    alarms = []
    evidence = gather(records, facts.reference, settings.max_weight_per_key)
    paired = [p for p in evidence.pieces if p.kind == "paired"]
    bound = -settings.margin * evidence.reference_level
    for variant in facts.variants:
        if variant in facts.reference:
            continue
        mean, lower = (expected.get(variant) or (bound, bound))[:2]
        expects = max(-1.0, min(mean, lower) - settings.margin)
        detector = Detector.below(expects, -1.0, 1.0)
        # A canary sends others; it is judged by itself.
        of_variant = [p for p in paired if p.variant == variant and p.served and records[p.record].arm == "stable"]
        least = min((p.propensity for p in of_variant), default=1.0)
        mine = sorted(
            (_known(records[p.record]), expects + least / p.propensity * (p.difference - expects), p.difference)
            for p in of_variant
        )
        for _, value, _ in mine:
            detector.add(value)
            if detector.alarmed(ALARM):
                recent = [v for _, _, v in mine[-_RECENT:]]
                now = math.fsum(recent) / len(recent)
                reason = (
                    f"quality of {variant} fell to {now:+.3f} against full precision (the last job saw {mean:+.3f})"
                )
                alarms.append(Alarm("variant", variant, reason, detector.n))
                break
    whole = Detector.below(bound, -1.0, 1.0)
    for value, _ in observations(records, paired, facts, arm="stable"):
        whole.add(value)
        if whole.alarmed(ALARM):
            alarms.append(Alarm("bound", "", f"quality is below the bound of {bound:+.4f}", whole.n))
            break
    return [*alarms, *_speeds(records, curves)]


def _speeds(records: Sequence[Record], curves: Mapping[str, Curve]) -> list[Alarm]:
    alarms = []
    thinned = Thinned(records)
    for variant, curve in curves.items():
        mine = [r for r in records if r.variant == variant and r.ok and r.completion_tokens > 1]
        load = Load(mine)
        ratios = []
        for record in [r for r in mine if not thinned.touches(r)][-_RECENT:]:
            running = min(load.mean(record.at - record.e2e_s, record.at), curve.slots)
            itl = curve.itl_base + curve.itl_per_running * running
            seen = (record.e2e_s - (record.ttft_s or 0.0)) / (record.completion_tokens - 1)
            if itl > 0.0:
                ratios.append(seen / itl)
        if len(ratios) == _RECENT:
            ratio = median(ratios)
            if not 1 / SLOWER < ratio < SLOWER:
                alarms.append(
                    Alarm("speed", variant, f"{variant} takes {ratio:.1f} times the seconds per token", _RECENT)
                )
    return alarms


def _known(record: Record) -> float:
    return max([record.at, *(label.at for label in record.labels)])

"""One job's thinking: records in, a verdict with every candidate out. Pure: equal inputs give an equal verdict."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from router.config.loop import TuningConfig
from router.tuning.candidates import Scale, Shares, around, beside, grid
from router.tuning.choose import Candidate, Choice, choose, leading
from router.tuning.estimators import ESTIMATORS, Estimate, Sample, Setting
from router.tuning.estimators.outcome import prepare
from router.tuning.estimators.types import Fitted, quantile
from router.tuning.evidence import Evidence, bin_of, gather, quantiles
from router.tuning.load_model import Curve, fit_curves, held_out_error, unknown_speeds
from router.tuning.records import Record
from router.tuning.replay import BLOCKS, Arrival, Facts, Outcome, arrivals, order, replay, thickened

STRATA = 10
FOLDS = 5
CURVE_RECORDS = 5_000
"""Speeds come from the newest of the records: they change more quickly than quality."""
REPLAYED = 10_000
"""Most requests of one replay: the newest."""
ROUNDS = 5
"""Looks around the best candidate so far."""
GAIN_CONFIDENCE = 0.7
"""Of a gain's interval: blocks of time differ in load, not only by chance, and a canary follows."""
_UNSEEN = Curve(0.0, 0.0, 0.0, 0.0, 0.0)


class Verdict(NamedTuple):
    """What a job found. `choice` is None where it refuses."""

    choice: Choice | None
    reason: str
    candidates: tuple[Candidate, ...]
    """The present thresholds first."""
    evidence: Evidence
    curves: Mapping[str, Curve]
    model_error: Mapping[str, float] | None
    """Relative error of predicted times on held-out records."""
    records: int
    labels: int
    """Labelled answers of lower precisions that count."""
    expected: Mapping[str, Estimate]
    """Difference from full precision of one answer, by variant: what the guards watch."""


class Quality:
    """Values candidates' quality: everything that does not hang on the candidate is made once."""

    def __init__(self, records: Sequence[Record], evidence: Evidence, facts: Facts, confidence: float) -> None:
        self._facts = facts
        self._confidence = confidence
        index = {v: k for k, v in enumerate(facts.variants)}
        self._top = {index[v] for v in facts.reference}
        made = arrivals(records, facts)
        places = order(records)
        self._position = {record: at for at, record in enumerate(places)}
        self.requests = made
        self._edges = [quantiles([r.risks[k] for r in made], STRATA) for k in range(len(facts.variants))]
        offered: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._strata = [tuple(map(bin_of, arrival.risks, self._edges)) for arrival in made]
        # Events that were left out are told by those that were kept (Horvitz and Thompson, 1952).
        self.weights = [records[i].weight for i in places]
        for arrival, strata, weight in zip(made, self._strata, self.weights, strict=True):
            for cell in enumerate(strata):
                row = offered[cell]
                row[0] += weight
                row[1] += weight * arrival.risks[cell[0]]
        self.risk = {key: row[1] / row[0] for key, row in offered.items()}
        labelled: dict[tuple[int, int], float] = defaultdict(float)
        pieces = [p for p in evidence.pieces if p.variant in index]
        cells = [(index[p.variant], self._strata[self._position[p.record]][index[p.variant]]) for p in pieces]
        weights = [records[p.record].weight for p in pieces]
        for cell, weight in zip(cells, weights, strict=True):
            labelled[cell] += weight
        n = max(1.0, math.fsum(self.weights))
        self._served = [p.served for p in pieces]
        self._drawn = [p.propensity for p in pieces]
        # Estimated by how often it happened, which is more exact than the probabilities themselves (Hirano, Imbens and
        # Ridder, 2003), and counts the labels of full precision's shadow too, whose variant nobody was served.
        self._base = [
            Sample(
                cell[0],
                cell[1],
                labelled[cell] / n,
                piece.difference,
                piece.weight * weights[i],
                i % FOLDS,
                made[self._position[piece.record]].risks[cell[0]],
            )
            for i, (piece, cell) in enumerate(zip(pieces, cells, strict=True))
        ]
        self.fitted: Fitted = prepare(self._base, self.risk)
        # For all candidates: each request's block of time and, by variant, its stratum's place in flat lists.
        self._blocks = [i * BLOCKS // len(made) for i in range(len(made))]
        self._of_block = [0.0] * BLOCKS
        for block, weight in zip(self._blocks, self.weights, strict=True):
            self._of_block[block] += weight

    @property
    def labels(self) -> int:
        """Labelled answers of lower precisions."""
        return len(self._base)

    def value(self, choices: Sequence[int]) -> dict[str, Estimate]:
        """Return each estimator's difference from full precision when request i goes to `choices[i]`."""
        width = STRATA * len(self._facts.variants)
        blocks = [[0.0] * width for _ in range(BLOCKS)]
        risks = [0.0] * width
        top = self._top
        rows = zip(choices, self._strata, self.requests, self.weights, self._blocks, strict=True)
        for k, strata, request, weight, block in rows:
            if k not in top:
                place = k * STRATA + strata[k]
                blocks[block][place] += weight
                risks[place] += weight * request.risks[k]
        n = max(1.0, math.fsum(self.weights))
        sums = [math.fsum(of_block[place] for of_block in blocks) for place in range(width)]
        cells = {place: divmod(place, STRATA) for place, total in enumerate(sums) if total > 0.0}
        mass = {cell: sums[place] / n for place, cell in cells.items()}
        risk = {cell: risks[place] / sums[place] for place, cell in cells.items()}
        values = {place: self.fitted.whole[cell[0]].value(cell[1], risk[cell]) for place, cell in cells.items()}
        means = [math.fsum(v * of_block[place] for place, v in values.items()) for of_block in blocks]
        setting = Setting(len(self._base), mass, risk, self._confidence, self.fitted, between(means, self._of_block))
        return {name: estimator(setting) for name, estimator in ESTIMATORS.items()}

    def variants(self) -> dict[str, Estimate]:
        """Return the difference from full precision of one labelled answer of each variant, as they were served."""
        found = {}
        for k, variant in enumerate(self._facts.variants):
            of_k = [
                (s, drawn)
                for s, served, drawn in zip(self._base, self._served, self._drawn, strict=True)
                if s.action == k and served
            ]
            if len(of_k) < 10:
                continue
            # As they were served: an answer that is labelled more often counts so much less.
            least = min(drawn for _, drawn in of_k)
            mine = [s._replace(weight=s.weight * least / drawn) for s, drawn in of_k]
            total = math.fsum(s.weight for s in mine)
            mean = math.fsum(s.weight * s.difference for s in mine) / total
            size = total * total / math.fsum(s.weight**2 for s in mine)
            spread = math.fsum(s.weight * (s.difference - mean) ** 2 for s in mine) / total
            half = quantile(self._confidence, size - 1.0) * math.sqrt(spread / size + 1.0 / (size + 1.0) ** 2)
            found[variant] = Estimate(mean, mean - half, mean + half, len(mine))
        return found


def between(sums: Sequence[float], weights: Sequence[float]) -> float:
    """Return the variance of a weighted mean that blocks of time show: their sums of values, and of weights."""
    n = math.fsum(weights)
    mean = math.fsum(sums) / n
    filled = sum(w > 0.0 for w in weights)
    if filled < 2:
        return 0.0
    return math.fsum((s - w * mean) ** 2 for s, w in zip(sums, weights, strict=True)) / n**2 * filled / (filled - 1)


def analyse(
    records: Sequence[Record],
    current: Mapping[str, float],
    facts: Facts,
    settings: TuningConfig,
    *,
    points: int = 5,
    replayed: int = REPLAYED,
) -> Verdict:
    """Estimate all candidates and choose. `current` are the stable thresholds by precision."""
    evidence = gather(records, facts.reference, settings.max_weight_per_key)
    variants = [v for v in facts.variants if v not in facts.last_resorts]
    recent = records[-CURVE_RECORDS:]
    curves = fit_curves(recent, variants)
    lower = [v for v in variants if v not in facts.reference]
    # A variant that nobody used yet counts as the slowest that is known.
    slowest = max(curves.values(), key=lambda c: c.itl_base + c.itl_per_running, default=_UNSEEN)
    quality = Quality(records, evidence, facts, settings.confidence) if records else None
    labels = quality.labels if quality else 0
    found = Verdict(None, "", (), evidence, curves, held_out_error(recent, variants), len(records), labels, {})
    refusal = _too_little(len(records), labels, lower, settings) or _unknown(recent, variants, curves)
    if refusal or quality is None:
        return found._replace(reason=refusal or "there are no records")
    scale = Scale(quality.requests, facts)
    present = {p: current.get(p, 0.0) for p in scale.precisions}
    ordered = [curves.get(v, slowest) for v in facts.variants]
    judged = Judge(quality, replayed, ordered, facts, scale, present)
    candidates = [judged.candidate(present)]
    seen = {tuple(present.values())}

    def consider(wanted: Sequence[Shares]) -> Candidate:
        for shares in wanted:
            thresholds = scale.thresholds(shares)
            if tuple(thresholds.values()) not in seen:
                seen.add(tuple(thresholds.values()))
                candidates.append(judged.candidate(thresholds))
        return leading(candidates, evidence.reference_level, settings)

    best = consider([*around(scale.shares(present), settings.max_step), *grid(len(scale.precisions), points)])
    # A pattern search (Hooke and Jeeves, 1961) from the best of the coarse look: on by one step, or by half of it.
    step = min(settings.max_step / 4, 0.4 / (points - 1))
    for _ in range(ROUNDS):
        before, best = best, consider(beside(best.shares, step))
        if best is before:
            step /= 2
    choice = choose(candidates, evidence.reference_level, settings)
    return found._replace(
        choice=choice, reason=choice.reason, candidates=tuple(candidates), expected=quality.variants()
    )


def all_choices(requests: Sequence[Arrival], newest: Sequence[int], sides: Sequence[int]) -> list[int]:
    """Return choices for all requests: the newest ones' as given, those before by turns as these of the same side took.

    `sides` are the requests' lowest precisions allowed, as `Scale.sides` gives them.
    """
    before = len(requests) - len(newest)
    if before == 0:
        return list(newest)
    taken: dict[int, list[int]] = defaultdict(list)
    for side, choice in zip(sides[before:], newest, strict=True):
        taken[side].append(choice)
    found = []
    for i, (request, side) in enumerate(zip(requests[:before], sides, strict=False)):
        like = taken.get(side) or newest
        choice = like[i % len(like)]
        found.append(choice if choice in request.usable or not request.usable else request.usable[0])
    return [*found, *newest]


def _too_little(records: int, labels: int, lower: Sequence[str], settings: TuningConfig) -> str:
    if records < settings.min_records:
        return f"too little data: {records} requests, a job needs {settings.min_records}"
    if labels < settings.min_labels:
        return f"too little data: {labels} quality labels of lower precisions, a job needs {settings.min_labels}"
    return "" if lower else "the group has one precision: nothing to tune"


def _unknown(recent: Sequence[Record], variants: Sequence[str], curves: Mapping[str, Curve]) -> str:
    if blind := unknown_speeds(recent, variants, curves):
        thin = sum(r.weight > 1.0 for r in recent)
        return (
            f"the speed of {', '.join(blind)} is not known: {thin} of the newest {len(recent)} requests stand for others "
            "that were not recorded, so the load beside them is not known; raise events.max_per_s"
        )
    return "" if curves else "no variant has enough answers to know its speed"


class Judge:
    """Makes candidates from thresholds: a replay for speed, the estimators for quality."""

    def __init__(
        self,
        quality: Quality,
        replayed: int,
        curves: Sequence[Curve],
        facts: Facts,
        scale: Scale,
        present: Mapping[str, float],
    ) -> None:
        newest, self._places = thickened(quality.requests, quality.weights, replayed)
        self._quality, self._newest, self._curves, self._facts = quality, newest, curves, facts
        self._scale, self._sides = scale, scale.sides(present)
        start = newest[0].at
        self._span = max(1e-9, newest[-1].at - start)
        self._block = [min(BLOCKS - 1, int((r.at - start) / self._span * BLOCKS)) for r in newest]
        offered = [0.0] * BLOCKS
        for block, request in zip(self._block, newest, strict=True):
            offered[block] += request.tokens
        by_load = sorted(range(BLOCKS), key=lambda b: offered[b])
        self._quiet = frozenset(by_load[: BLOCKS // 2])
        tokens = math.fsum(r.tokens for r in newest)
        self._targeted = math.fsum(r.tokens for r in newest if r.targeted) / tokens
        self._base = self._speeds(replay(newest, curves, facts, present))

    def candidate(self, thresholds: Mapping[str, float]) -> Candidate:
        """Return what is expected of these thresholds."""
        outcome = replay(self._newest, self._curves, self._facts, thresholds)
        sides = self._scale.sides(thresholds)
        choices = all_choices(self._quality.requests, [outcome.choices[i] for i in self._places], sides)
        shares = self._scale.shares(thresholds)
        counts: dict[str, float] = defaultdict(float)
        cost = 0.0
        for k, e2e in zip(outcome.choices, outcome.e2e_s, strict=True):
            counts[self._facts.variants[k]] += 1.0 / len(outcome.choices)
            cost += self._facts.prices[k] * e2e / len(outcome.choices)
        targeted = [(ok, b) for ok, b, r in zip(outcome.in_time, self._block, self._newest, strict=True) if r.targeted]
        quiet = [ok for ok, b in targeted if b in self._quiet]
        good = math.fsum(r.tokens for r, ok in zip(self._newest, outcome.in_time, strict=True) if ok)
        return Candidate(
            dict(thresholds),
            shares,
            dict(counts),
            self._quality.value(choices),
            good / self._span,
            self._gain(outcome),
            sum(ok for ok, _ in targeted) / len(targeted) if targeted else 1.0,
            sum(quiet) / len(quiet) if quiet else 1.0,
            sorted(outcome.ttft_s)[int(0.95 * (len(outcome.ttft_s) - 1))],
            cost,
            self._scale.moved(sides, self._sides),
        )

    def _speeds(self, outcome: Outcome) -> tuple[list[float], list[float]]:
        """Return by block: tokens in time of requests with a target, seconds per token of the others."""
        good, seconds, tokens = [0.0] * BLOCKS, [0.0] * BLOCKS, [0.0] * BLOCKS
        rows = zip(self._block, self._newest, outcome.in_time, outcome.e2e_s, strict=True)
        for block, request, in_time, e2e in rows:
            if request.targeted:
                good[block] += request.tokens if in_time else 0.0
            else:
                seconds[block] += e2e
                tokens[block] += request.tokens
        return good, [s / t if t else 0.0 for s, t in zip(seconds, tokens, strict=True)]

    def _gain(self, outcome: Outcome) -> tuple[float, float, float]:
        """Return the relative gain over the present thresholds, paired by blocks of time (Student's t)."""
        good, pace = self._speeds(outcome)
        base, base_pace = self._base
        mean_good = max(1e-9, math.fsum(base) / BLOCKS)
        mean_pace = math.fsum(base_pace) / BLOCKS
        gains = []
        for block in range(BLOCKS):
            gain = self._targeted * (good[block] - base[block]) / mean_good
            if mean_pace > 0.0:
                # Without a target more tokens/s is better: less time per token.
                gain += (1.0 - self._targeted) * (base_pace[block] - pace[block]) / mean_pace
            gains.append(gain)
        mean = math.fsum(gains) / BLOCKS
        error = math.sqrt(math.fsum((g - mean) ** 2 for g in gains) / (BLOCKS - 1) / BLOCKS)
        half = quantile(GAIN_CONFIDENCE, BLOCKS - 1) * error
        return mean, mean - half, mean + half


def value(
    records: Sequence[Record],
    thresholds: Mapping[str, float],
    facts: Facts,
    settings: TuningConfig,
    confidence: float,
    *,
    replayed: int = REPLAYED,
) -> tuple[Mapping[str, Estimate], float]:
    """Return one vector's difference from full precision by estimator, on all evidence, and full precision's level."""
    evidence = gather(records, facts.reference, settings.max_weight_per_key)
    recent = records[-CURVE_RECORDS:]
    curves = fit_curves(recent, facts.variants)
    if not records or not curves or unknown_speeds(recent, facts.variants, curves):
        return {name: Estimate(0.0, -1.0, 1.0, 0) for name in ESTIMATORS}, evidence.reference_level
    quality = Quality(records, evidence, facts, confidence)
    slowest = max(curves.values(), key=lambda c: c.itl_base + c.itl_per_running)
    ordered = [curves.get(v, slowest) for v in facts.variants]
    scale = Scale(quality.requests, facts)
    present = {p: thresholds.get(p, 0.0) for p in scale.precisions}
    newest, places = thickened(quality.requests, quality.weights, replayed)
    outcome = replay(newest, ordered, facts, present)
    choices = all_choices(quality.requests, [outcome.choices[i] for i in places], scale.sides(present))
    return quality.value(choices), evidence.reference_level

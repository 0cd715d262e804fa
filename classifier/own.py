"""A classifier from the user's own variants: train, calibrate on held-out prompts, test segments, say what it is worth.

Everything reported is held out: scores come from models that saw none of a prompt's fold, risks from calibrations that saw
neither. The artefact's own model is then fitted on all prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from classifier.bend import fit_bend, pieces
from classifier.calibration import Calibration
from classifier.drift import reference
from classifier.evaluate import Array, auc, calibration_error, interval
from classifier.features import NAMES, Features
from classifier.fit import FITTERS, Examples, fit_platt, ranges, rounded
from classifier.folds import group_folds
from classifier.labels import LABELS, Loss
from classifier.models import build
from classifier.noninferiority import Paired, paired, verdicts
from classifier.risks import PRECISIONS
from classifier.segments import LIKE, parts_of, segment_of

T = TypeVar("T")
FOLDS = 5
LEAST_PROMPTS = 50
LEAST_CLASS = 10
LEVELS = (0.99, 0.95)
"""Shares of full precision's quality that traffic shall keep."""
_CLIP = 2.5
_SLOPE_SPREAD = 3.0
_SMOOTHING = 10.0
_RESAMPLES = 500
_DIMENSIONS = ("language", "kind", "length", "form")


class OwnDataError(ValueError):
    """Too little, or nothing, to learn from."""


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt and what each label says of each precision."""

    features: Features
    group: str
    """Rows of one group stay in one fold."""
    task: str
    losses: Mapping[str, Mapping[str, Loss]]
    """By precision, then by label; labels that cannot tell are missing."""


def content(rows: Sequence[Row], *, label: str, margin: float, kind: str, seed: int = 0) -> dict[str, Any]:
    """Return an artefact's content but for its name, date and data. Raises `OwnDataError`.

    `label`: one of `LABELS`, or `auto` (divergence where it was scored, else agreement); `margin`: share of full precision's
    quality; `kind`: a registered model.
    """
    if kind not in FITTERS:
        raise OwnDataError(f"unknown model {kind!r}; known: {', '.join(FITTERS)}")
    tested = [name for name in PRECISIONS if any(name in row.losses for row in rows)]
    if not tested:
        raise OwnDataError("no answers of a lower precision that a risk is kept for")
    label = _label(rows, tested, label)
    kept = [row for row in rows if all(label in row.losses.get(name, {}) for name in tested)]
    if len(kept) < LEAST_PROMPTS:
        raise OwnDataError(f"{len(kept)} prompts with the label {label!r}; at least {LEAST_PROMPTS} are needed")
    lowest = tested[-1]
    worse = {name: np.array([float(row.losses[name][label].worse) for row in kept]) for name in tested}
    examples = Examples([row.features for row in kept], _target(kept, tested, label), [row.group for row in kept])
    folds = group_folds(examples.groups, FOLDS, seed)
    scores = _held_out_scores(examples, folds, kind, seed)
    z = _standard(scores)
    segments = [segment_of(row.features) for row in kept]
    risks, means = _held_out_risks(z, worse, folds, segments, seed)
    worth = _worth(risks[lowest], means[lowest], z, worse[lowest], seed)
    used = risks if worth["per_prompt"] else means
    length = np.array([item.vector[NAMES.index("log_tokens")] for item in examples.features])
    tables = {name: _segment_table(rows, tested, name, margin) for name in LABELS}
    made, calibration = _final(examples, z, worse, tested, kind, seed)
    thresholds, shares = _shares(kept, used, length, tested, label, seed)
    return {
        "model": {"kind": kind, "parameters": made},
        "calibration": calibration,
        "labels": f"own variants: {label}",
        "label": label,
        "margin": margin,
        "seed": seed,
        "segments": _cells(tables[label], segments, worse, tested, bool(worth["per_prompt"])),
        "reference": reference([item.vector for item in examples.features], used[lowest].tolist()),
        "thresholds": {"recommended": _filled(thresholds, 0.0)},
        "figures": {
            "prompts": len(rows),
            "labelled": len(kept),
            "tested": tested,
            "worth": worth,
            "calibration_error": {name: calibration_error(used[name], worse[name]) for name in tested},
            "calibration_error_by_chance": {name: _error_by_chance(used[name], seed) for name in tested},
            "labels": _label_figures(rows, kept, z, length, tested, seed),
            "shares": shares,
            "segments": {
                name: {key: asdict(value) | {"verdict": said} for key, (value, said) in _flat(table).items()}
                for name, table in tables.items()
                if table
            },
        },
    }


def _label(rows: Sequence[Row], tested: Sequence[str], label: str) -> str:
    counts = {
        name: sum(all(name in row.losses.get(precision, {}) for precision in tested) for row in rows) for name in LABELS
    }
    if label == "auto":
        return "divergence" if counts["divergence"] >= max(LEAST_PROMPTS, len(rows) // 2) else "agreement"
    if label not in LABELS:
        raise OwnDataError(f"unknown label {label!r}; known: auto, {', '.join(LABELS)}")
    return label


def _target(rows: Sequence[Row], tested: Sequence[str], label: str) -> Array:
    """The mean of the precisions' targets, each without its outermost percents and over its spread."""
    total = np.zeros(len(rows))
    for name in tested:
        values = np.array([row.losses[name][label].target for row in rows])
        values = np.clip(values, *np.quantile(values, [0.02, 0.98]))
        total += (values - values.mean()) / (values.std() or 1.0)
    return np.asarray(total / len(tested), dtype=np.float64)


def _standard(scores: Array) -> Array:
    return np.asarray(np.clip((scores - scores.mean()) / (scores.std() or 1.0), -_CLIP, _CLIP), dtype=np.float64)


def _held_out_scores(examples: Examples, folds: Array, kind: str, seed: int) -> Array:
    scores = np.zeros(len(examples.features))
    for number in range(FOLDS):
        test = np.flatnonzero(folds == number).tolist()
        model = build(kind, FITTERS[kind](examples.part(np.flatnonzero(folds != number).tolist()), seed))
        scores[test] = [model.score(examples.features[i]) for i in test]
    return scores


def _held_out_risks(
    z: Array, worse: Mapping[str, Array], folds: Array, segments: Sequence[str], seed: int
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Per precision: per-prompt risks, and the segments' means, of prompts that neither saw."""
    risks = {name: np.zeros(len(z)) for name in worse}
    means = {name: np.zeros(len(z)) for name in worse}
    for number in range(FOLDS):
        test, train = folds == number, folds != number
        at = np.flatnonzero(test).tolist()
        least = np.zeros(len(at))
        for name, label in worse.items():
            bend = fit_bend(z[train], label[train], pieces(z[train], _CLIP))
            # As it is served: a lower precision never has less risk than a higher one.
            risks[name][test] = least = np.maximum(least, bend.probability(z[test]))
            rates = _segment_rates([segments[i] for i in np.flatnonzero(train).tolist()], label[train])
            means[name][at] = [rates.get(segments[i], _rate(label[train])) for i in at]
    return risks, means


def _rate(worse: Array) -> float:
    """A rate by Jeffreys' prior: never 0 or 1."""
    return float((worse.sum() + 0.5) / (len(worse) + 1))


def _segment_rates(segments: Sequence[str], worse: Array) -> dict[str, float]:
    """Each segment's mean, drawn towards that of all by the weight of ten prompts."""
    overall = _rate(worse)
    names = np.array(segments)
    return {
        str(name): float((worse[names == name].sum() + _SMOOTHING * overall) / ((names == name).sum() + _SMOOTHING))
        for name in np.unique(names)
    }


def _log_loss(risk: Array, worse: Array) -> Array:
    return np.asarray(-(worse * np.log(risk) + (1 - worse) * np.log(1 - risk)), dtype=np.float64)


def _worth(risk: Array, mean: Array, z: Array, worse: Array, seed: int) -> dict[str, Any]:
    """What the per-prompt risk is worth at the lowest precision, against the segment's mean alone."""
    gain = _log_loss(mean, worse) - _log_loss(risk, worse)
    low, high = interval(lambda i: float(gain[i].mean()), len(gain), _RESAMPLES, seed)
    area = _area(z, worse, seed)
    above_chance = area is not None and area["low"] > 0.5
    return {
        "auc": area,
        "log_loss": float(_log_loss(risk, worse).mean()),
        "log_loss_segment_mean": float(_log_loss(mean, worse).mean()),
        "gain": float(gain.mean()),
        "gain_interval": [low, high],
        "above_chance": above_chance,
        "per_prompt": above_chance and low > 0,
    }


def _area(score: Array, worse: Array, seed: int, least: int = LEAST_CLASS) -> dict[str, float] | None:
    """The area under the ROC curve with its interval; None with fewer than `least` of either class, where it says nothing."""
    if min(worse.sum(), len(worse) - worse.sum()) < least:
        return None
    value = auc(score, worse)
    low, high = interval(lambda i: auc(score[i], worse[i]), len(score), _RESAMPLES, seed)
    return {"value": value, "low": low, "high": high}


def _error_by_chance(risk: Array, seed: int) -> float:
    """The calibration error that perfectly calibrated risks would show at this size, by chance alone (mean of 100 draws)."""
    draw = np.random.default_rng(seed)
    errors = [calibration_error(risk, (draw.random(len(risk)) < risk).astype(np.float64)) for _ in range(100)]
    return float(np.mean(errors))


def _label_figures(
    rows: Sequence[Row], kept: Sequence[Row], z: Array, length: Array, tested: Sequence[str], seed: int
) -> dict[str, Any]:
    """Per label and precision: how often worse, how much lost, and the areas of score and of length alone."""
    found: dict[str, Any] = {}
    for label in LABELS:
        for name in tested:
            at = [i for i, row in enumerate(kept) if label in row.losses[name]]
            losses = [row.losses[name][label] for row in rows if label in row.losses.get(name, {})]
            if not losses:
                continue
            worse = np.array([float(kept[i].losses[name][label].worse) for i in at])
            found.setdefault(label, {})[name] = {
                "prompts": len(losses),
                "worse": float(np.mean([loss.worse for loss in losses])),
                "full_quality": float(np.mean([loss.quality_full for loss in losses])),
                "quality": float(np.mean([loss.quality for loss in losses])),
                "mean_target": float(np.mean([loss.target for loss in losses])),
                # Of two or three losses the interval says how little is known; with `worse` beside it nobody is misled.
                "auc": _area(z[at], worse, seed, 2),
                "auc_length": _area(length[at], worse, seed, 2),
            }
    return found


def share_at(risk: Array, full: Array, own: Array, level: float) -> tuple[float, float]:
    """Return the largest share of prompts, those of the least risk first, that keeps `level` of full precision's quality,
    and the highest risk among them (0 where none may go).

    Prompts of equal risk go together.
    """
    order = np.argsort(risk, kind="stable")
    quality = full.sum() - np.cumsum((full - own)[order])
    last = np.append(np.diff(risk[order]) > 0, True)
    fine = np.flatnonzero((quality >= level * full.sum() - 1e-9) & last)
    if not len(fine):
        return 0.0, 0.0
    return float(fine[-1] + 1) / len(risk), float(risk[order][fine[-1]])


def random_share(full: Array, own: Array, level: float) -> float:
    """Return the share that may go when it is drawn by lot (in expectation)."""
    lost = float((full - own).sum())
    return 1.0 if lost <= 0 else min(1.0, (1 - level) * float(full.sum()) / lost)


def _shares(
    rows: Sequence[Row], risks: Mapping[str, Array], length: Array, tested: Sequence[str], label: str, seed: int
) -> tuple[dict[str, float], dict[str, Any]]:
    """The thresholds that keep 99% of quality on held-out prompts, and every share, by label, precision and level."""
    thresholds: dict[str, float] = {}
    shares: dict[str, Any] = {}
    for which in LABELS:
        for name in tested:
            at = [i for i, row in enumerate(rows) if which in row.losses[name]]
            full = np.array([rows[i].losses[name][which].quality_full for i in at])
            own = np.array([rows[i].losses[name][which].quality for i in at])
            # Of a handful of right answers, a share to keep means nothing.
            if len(at) < LEAST_PROMPTS or full.sum() < LEAST_CLASS:
                continue
            risk, size = risks[name][at], length[at]
            for level in LEVELS:
                share, limit = share_at(risk, full, own, level)
                if which == label and level == LEVELS[0]:
                    thresholds[name] = limit
                shares.setdefault(which, {}).setdefault(name, {})[str(level)] = {
                    "classifier": share,
                    "interval": _share_interval(risk, full, own, level, seed),
                    "length": share_at(size, full, own, level)[0],
                    "random": random_share(full, own, level),
                    "oracle": share_at(full - own, full, own, level)[0],
                }
    return thresholds, shares


def _share_interval(risk: Array, full: Array, own: Array, level: float, seed: int) -> list[float]:
    def statistic(i: NDArray[np.intp]) -> float:
        return share_at(risk[i], full[i], own[i], level)[0]

    return list(interval(statistic, len(risk), 200, seed))


Table = dict[str, dict[str, tuple[Paired, str]]]
"""By precision and segment."""


def _segment_table(rows: Sequence[Row], tested: Sequence[str], label: str, margin: float) -> Table:
    """Paired tests of every segment (each dimension's values, tasks, and the cells that route) under one label."""
    found: dict[tuple[str, str], Paired] = {}
    for name in tested:
        told = [(row, row.losses[name][label]) for row in rows if label in row.losses.get(name, {})]
        members: dict[str, list[Loss]] = {}
        for row, loss in told:
            parts = parts_of(row.features)
            names = [f"{dimension}={part}" for dimension, part in zip(_DIMENSIONS, parts, strict=True)]
            for segment in ("all", f"task={row.task}", *names, segment_of(row.features)):
                members.setdefault(segment, []).append(loss)
        for segment, losses in members.items():
            found[name, segment] = paired(
                np.array([loss.quality_full for loss in losses]), np.array([loss.quality for loss in losses]), margin
            )
    said = verdicts({f"{name} {segment}": row for (name, segment), row in found.items()})
    table: Table = {}
    for name, segment in sorted(found):
        table.setdefault(name, {})[segment] = (found[name, segment], said[f"{name} {segment}"])
    return table


def _flat(table: Table) -> dict[str, tuple[Paired, str]]:
    return {f"{name} {segment}": row for name, rows in table.items() for segment, row in rows.items()}


def _cells(
    table: Table, segments: Sequence[str], worse: Mapping[str, Array], tested: Sequence[str], per_prompt: bool
) -> dict[str, Any]:
    rates = {name: _segment_rates(segments, worse[name]) for name in tested}
    return {
        "per_prompt": per_prompt,
        "overall": _rising(_filled({name: _rate(worse[name]) for name in tested}, 1.0)),
        "cells": {
            segment: {
                "rates": _rising(_filled({name: rates[name][segment] for name in tested}, 1.0)),
                "verdicts": list(_filled({name: table[name][segment][1] for name in tested}, "undecided").values()),
            }
            for segment in sorted(set(segments))
        },
    }


def _filled(by_name: Mapping[str, T], missing: T) -> dict[str, T]:
    """One value per precision; those that were not tried take that of their like, or `missing`."""
    return {name: by_name.get(name, by_name.get(LIKE.get(name, ""), missing)) for name in PRECISIONS}


def _rising(by_name: Mapping[str, float]) -> list[float]:
    """The values as a list that never falls."""
    return [float(v) for v in np.maximum.accumulate(list(by_name.values()))]


def _final(
    examples: Examples, z: Array, worse: Mapping[str, Array], tested: Sequence[str], kind: str, seed: int
) -> tuple[dict[str, object], dict[str, object]]:
    """The model of all prompts, and the calibration: its lines are those of the held-out scores."""
    parameters = FITTERS[kind](examples, seed)
    model = build(kind, parameters)
    scores = np.array([model.score(item) for item in examples.features])
    platt = fit_platt(z, worse[tested[-1]], 0.0, _SLOPE_SPREAD)
    points = pieces(z, _CLIP)
    bends = {name: fit_bend(z, worse[name], points) for name in tested}
    starts = {name: bend.intercept for name, bend in bends.items()}
    low, high = ranges(examples.matrix())
    calibration: dict[str, object] = {
        "mean": float(scores.mean()),
        "scale": float(scores.std()) or 1.0,
        "clip": _CLIP,
        "slope": platt.slope,
        "points": rounded(points),
        "bends": [rounded(bend.heights) for bend in _filled(bends, bends[tested[-1]]).values()],
        "intercepts": _rising(_filled(starts, max(starts.values()))),
        "structured": [0.0] * len(PRECISIONS),
        "covariance": list(platt.covariance),
        "floor": -_CLIP,
        "han_shift": 0.0,
        "low": [float(v) for v in low],
        "high": [float(v) for v in high],
    }
    if kind not in ("constant", "random"):
        checked = Calibration.from_content(calibration)
        standard: Callable[[Features], float] = lambda item: checked.standard(model.score(item), item)  # noqa: E731
        calibration["floor"] = float(np.quantile([standard(item) for item in examples.features], 0.8))
    return parameters, calibration

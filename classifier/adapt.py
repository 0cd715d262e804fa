"""Learning from pairs of answers to own traffic: an artefact's risks calibrated anew, and its order of requests corrected.

Of a request only numbers were kept: the artefact's own score, the cheap features, and how much worse the lower precision's
answer was. Two changes are tried, each on folds that it did not see: other probabilities for the same order (Platt scaling per
precision), and the order corrected by a ridge-penalised logistic regression on the features. A change is made only where its
log loss is lower with 95% confidence (bootstrap over requests); the correction also has to beat the calibration alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from classifier.artefact import Artefact
from classifier.drift import reference
from classifier.evaluate import Array, auc, calibration_error, interval
from classifier.features import NAMES
from classifier.fit import fit_platt, intercept_for, ranges, rounded
from classifier.folds import group_folds
from classifier.risks import PRECISIONS
from classifier.segments import LIKE

LEAST_PAIRS = 200
LEAST_WORSE = 20
"""Answers that were worse, and as many that were not: with fewer nothing can be told."""
LEAST_OF_A_PRECISION = 50
"""Pairs; of a precision with fewer nothing is learnt, as if there were none."""
LEAST_DIFFERENT = 50
"""Requests that differ in what was kept of them."""
FOLDS = 5
_CLIP = 2.5
_SLOPE_SPREAD = 3.0
_PENALTIES = (10.0, 30.0, 100.0)
_INNER_FOLDS = 3
_RESAMPLES = 1000
_LEAST_RISK = 1e-4


class Seen(NamedTuple):
    """One pair of answers, and the numbers that were kept of its request."""

    precision: str
    worse: float
    """How much worse the lower precision's answer was, in [0, 1]; of a judge that says only same or not, 0 or 1."""
    risk: float
    """What was foretold, in [0, 1]."""
    score: float
    """Of the artefact's own model, without a correction (`base_score`)."""
    vector: tuple[float, ...]
    """Features, as `NAMES`."""
    weight: float = 1.0
    """How many requests the pair stands for."""


class Moved(NamedTuple):
    """One pair's risk under the old artefact and under the new one."""

    precision: str
    before: float
    after: float
    weight: float


@dataclass(frozen=True)
class Adaption:
    """What came of it. `content` is the new artefact's, None where nothing is better."""

    content: dict[str, Any] | None
    reason: str
    figures: Mapping[str, Any]
    moved: Sequence[Moved] = ()
    """Each pair's risk before and after, where there is a new artefact."""


class _Rows(NamedTuple):
    """The pairs as arrays."""

    precision: list[str]
    worse: Array
    risk: Array
    z: Array
    """Standardised score that orders requests now."""
    base: Array
    """The same without a correction."""
    features: Array
    weight: Array
    groups: list[str]

    def part(self, at: Array) -> _Rows:
        where = np.flatnonzero(at).tolist()
        return _Rows(
            [self.precision[i] for i in where],
            self.worse[where],
            self.risk[where],
            self.z[where],
            self.base[where],
            self.features[where],
            self.weight[where],
            [self.groups[i] for i in where],
        )


class _Correction(NamedTuple):
    """`weight * base + (clip(features) - centre) @ weights`."""

    weight: float
    weights: Array
    centre: Array
    low: Array
    high: Array

    def score(self, rows: _Rows) -> Array:
        return self.of(rows.base, rows.features)

    def of(self, base: Array, features: Array) -> Array:
        clipped = np.clip(features, self.low, self.high) - self.centre
        return np.asarray(self.weight * base + clipped @ self.weights, dtype=np.float64)


class _Platts(NamedTuple):
    """Standardises a score and turns it into one risk per precision."""

    mean: float
    scale: float
    slopes: Mapping[str, float]
    intercepts: Mapping[str, float]

    def standard(self, score: Array) -> Array:
        return np.clip((score - self.mean) / self.scale, -_CLIP, _CLIP)

    def risks(self, score: Array, precisions: Sequence[str]) -> Array:
        # Requests that are alike stay together, so a fold may leave no pair of some precision to learn from.
        slope = np.array([_value(self.slopes, p) for p in precisions])
        start = np.array([_value(self.intercepts, p) for p in precisions])
        return _bounded(1 / (1 + np.exp(-(start + slope * self.standard(score)))))


def adapt(base: Artefact, seen: Sequence[Seen], *, seed: int = 0) -> Adaption:
    """Return the artefact that the pairs make of `base`, or why there is none.

    `content` lacks name, date and data. Pure: equal pairs give an equal artefact.
    """
    known = [pair for pair in seen if pair.precision in PRECISIONS and len(pair.vector) == len(NAMES)]
    count = Counter(pair.precision for pair in known)
    if len(known) >= LEAST_PAIRS:
        known = [pair for pair in known if count[pair.precision] >= LEAST_OF_A_PRECISION]
    worse = sum(pair.worse > 0.5 for pair in known)
    figures: dict[str, Any] = {"pairs": len(known), "worse": worse}
    if len(known) < LEAST_PAIRS:
        return Adaption(None, f"{len(known)} pairs with features; at least {LEAST_PAIRS} are needed", figures)
    if min(worse, len(known) - worse) < LEAST_WORSE:
        told = f"{worse} of {len(known)} answers were worse; at least {LEAST_WORSE} of either kind are needed"
        return Adaption(None, told, figures)
    rows = _rows(base, known)
    if len(set(rows.groups)) < LEAST_DIFFERENT:
        told = f"{len(set(rows.groups))} different requests; at least {LEAST_DIFFERENT} are needed"
        return Adaption(None, told, figures)
    # Threads that wait for each other cost more than these small matrices.
    with threadpool_limits(1):
        return _tried(base, rows, figures, seed)


def _tried(base: Artefact, rows: _Rows, figures: dict[str, Any], seed: int) -> Adaption:
    folds = group_folds(rows.groups, FOLDS, seed)
    held = {"as served": _bounded(rows.risk), "calibrated": np.zeros(len(folds)), "corrected": np.zeros(len(folds))}
    for number in range(FOLDS):
        train, test = rows.part(folds != number), rows.part(folds == number)
        held["calibrated"][folds == number] = _platts(train.z, train).risks(test.z, test.precision)
        correction = _correction(train, seed)
        score = correction.score(train)
        held["corrected"][folds == number] = _platts(score, train).risks(correction.score(test), test.precision)
    gains = {
        f"{after} over {before}": _gain(held[before], held[after], rows, seed)
        for before, after in (("as served", "calibrated"), ("as served", "corrected"), ("calibrated", "corrected"))
    }
    figures |= {
        "by_precision": {p: rows.precision.count(p) for p in sorted(set(rows.precision))},
        "log_loss": {name: _mean(_log_loss(risk, rows.worse), rows.weight) for name, risk in held.items()},
        "calibration_error": {name: calibration_error(risk, rows.worse) for name, risk in held.items()},
        "auc": {name: auc(risk, rows.worse) for name, risk in held.items()},
        "gain": gains,
    }
    if gains["corrected over calibrated"][1] > 0 and gains["corrected over as served"][1] > 0:
        correction = _correction(rows, seed)
        score, told = correction.score(rows), _told("the corrected order", gains["corrected over as served"])
        return Adaption(_content(base, rows, score, correction), told, figures, _moved(rows, score))
    if gains["calibrated over as served"][1] > 0:
        told = _told("the same order", gains["calibrated over as served"])
        return Adaption(_content(base, rows, rows.z, None), told, figures, _moved(rows, rows.z))
    mean, low, high = gains["calibrated over as served"]
    told = (
        f"nothing foretells held-out pairs better than what serves (best guess {mean:+.4f} [{low:+.4f}, {high:+.4f}])"
    )
    return Adaption(None, told, figures)


def _moved(rows: _Rows, score: Array) -> list[Moved]:
    after = _platts(score, rows).risks(score, rows.precision)
    found = zip(rows.precision, rows.risk.tolist(), after.tolist(), rows.weight.tolist(), strict=True)
    return [Moved(*row) for row in found]


def _told(what: str, gain: tuple[float, float, float]) -> str:
    mean, low, high = gain
    return f"{what} with risks from own pairs foretells held-out ones better: log loss {mean:+.4f} [{low:+.4f}, {high:+.4f}] lower"


def _rows(base: Artefact, seen: Sequence[Seen]) -> _Rows:
    score = np.array([pair.score for pair in seen])
    weight = np.array([pair.weight for pair in seen])
    features = np.array([pair.vector for pair in seen], dtype=np.float64)
    calibration, own = base.calibration, base.content["model"]["parameters"]
    if base.kind == "adapted":
        inner = np.clip((score - own["mean"]) / own["scale"], -own["clip"], own["clip"])
        linear = {name: np.array(own["linear"][name]) for name in ("weights", "centre", "low", "high")}
        score = _Correction(own["weight"], **linear).of(inner, features)
    now = np.clip((score - calibration.mean) / calibration.scale, -calibration.clip, calibration.clip)
    return _Rows(
        [pair.precision for pair in seen],
        np.clip([pair.worse for pair in seen], 0.0, 1.0),
        np.array([pair.risk for pair in seen]),
        now,
        inner if base.kind == "adapted" else now,
        features,
        weight / weight.mean(),
        # Like requests stay in one fold: by what was kept they cannot be told apart.
        [repr(tuple(round(value, 4) for value in pair.vector)) for pair in seen],
    )


def _correction(rows: _Rows, seed: int) -> _Correction:
    """Fit the correction; its penalty is the one that foretells best within these rows."""
    folds = group_folds(rows.groups, _INNER_FOLDS, seed + 1)
    losses = []
    for penalty in _PENALTIES:
        total = 0.0
        for number in range(_INNER_FOLDS):
            train, test = rows.part(folds != number), rows.part(folds == number)
            fitted = _fit(train, penalty)
            risk = _platts(fitted.score(train), train).risks(fitted.score(test), test.precision)
            total += float((_log_loss(risk, test.worse) * test.weight).sum())
        losses.append(total)
    return _fit(rows, _PENALTIES[int(np.argmin(losses))])


def _fit(rows: _Rows, penalty: float) -> _Correction:
    """Ridge-penalised logistic regression by Newton's method; intercepts per precision and the base's weight are free."""
    low, high = ranges(rows.features)
    clipped = np.clip(rows.features, low, high)
    centre, scale = clipped.mean(axis=0), clipped.std(axis=0)
    scale[scale < 1e-9] = np.inf
    tested = sorted(set(rows.precision))
    starts = np.array([[float(p == name) for name in tested] for p in rows.precision])
    design = np.hstack([starts, rows.base[:, None], (clipped - centre) / scale])
    ridge = np.diag([1e-3] * len(tested) + [1e-2] + [penalty] * clipped.shape[1])
    theta = np.zeros(design.shape[1])
    for _ in range(50):
        risk = _bounded(1 / (1 + np.exp(-np.clip(design @ theta, -30, 30))))
        gradient = design.T @ (rows.weight * (rows.worse - risk)) - ridge @ theta
        hessian = design.T @ (design * (rows.weight * risk * (1 - risk))[:, None]) + ridge
        step = np.linalg.solve(hessian, gradient)
        # A full step may overshoot where risks are extreme.
        theta = theta + step * min(1.0, 2.0 / max(1e-12, float(np.abs(step).max())))
        if float(np.abs(step).max()) < 1e-8:
            break
    place = len(tested)
    # A base that says the opposite of what was seen counts for nothing.
    return _Correction(max(0.0, float(theta[place])), theta[place + 1 :] / scale, centre, low, high)


def _platts(score: Array, rows: _Rows) -> _Platts:
    mean, scale = float(score.mean()), float(score.std()) or 1.0
    z = np.clip((score - mean) / scale, -_CLIP, _CLIP)
    slopes, intercepts = {}, {}
    for name in sorted(set(rows.precision)):
        at = np.array([p == name for p in rows.precision])
        own, worse, weight = z[at], rows.worse[at], rows.weight[at]
        slopes[name] = fit_platt(own, worse, 0.0, _SLOPE_SPREAD).slope
        rate = (float((worse * weight).sum()) + 0.5) / (float(weight.sum()) + 1.0)
        intercepts[name] = intercept_for(rate, slopes[name] * own)
    return _Platts(mean, scale, slopes, intercepts)


def _content(base: Artefact, rows: _Rows, score: Array, correction: _Correction | None) -> dict[str, Any]:
    platts, old = _platts(score, rows), base.content["calibration"]
    lowest = max(set(rows.precision), key=PRECISIONS.index)
    at = np.array([p == lowest for p in rows.precision])
    z = platts.standard(score)
    low, high = ranges(rows.features)
    slopes, starts = _filled(platts.slopes), _filled(platts.intercepts)
    calibration = {
        **{key: value for key, value in old.items() if key not in ("points", "bends")},
        "mean": platts.mean,
        "scale": platts.scale,
        "clip": _CLIP,
        "slope": platts.slopes[lowest],
        "slopes": slopes,
        "intercepts": [float(v) for v in np.maximum.accumulate(starts)],
        "covariance": list(fit_platt(z[at], rows.worse[at], 0.0, _SLOPE_SPREAD).covariance),
        # Text of unlikely form is at least as risky as the hardest fifth.
        "floor": float(np.quantile(z, 0.8)),
        # Own traffic tells how hard Chinese is.
        "han_shift": 0.0,
        "low": rounded(np.minimum(low, old["low"])),
        "high": rounded(np.maximum(high, old["high"])),
    }
    model: dict[str, Any] = dict(base.content["model"])
    if correction is None:
        # Platt scaling stands on the base's standardised score.
        calibration["mean"] = base.calibration.mean + base.calibration.scale * platts.mean
        calibration["scale"] = base.calibration.scale * platts.scale
    else:
        old_scale = {name: getattr(base.calibration, name) for name in ("mean", "scale", "clip")}
        if base.kind == "adapted":
            # A new correction takes the place of the old one.
            inner = model["parameters"]
            model, old_scale = inner["base"], {name: inner[name] for name in ("mean", "scale", "clip")}
        model = {
            "kind": "adapted",
            "parameters": {
                "base": model,
                **old_scale,
                "weight": correction.weight,
                "linear": {
                    "intercept": 0.0,
                    "weights": rounded(correction.weights),
                    "centre": rounded(correction.centre),
                    "low": rounded(correction.low),
                    "high": rounded(correction.high),
                },
            },
        }
    risks = platts.risks(score, rows.precision)
    content = {key: value for key, value in base.content.items() if key not in ("sha256", "format", "feature_version")}
    content |= {
        "model": model,
        "calibration": calibration,
        "labels": "pairs of answers to own traffic",
        "reference": reference(rows.features.tolist(), risks.tolist()),
    }
    if isinstance(content.get("segments"), dict):
        content["segments"] = {**content["segments"], "per_prompt": True}
    return content


def _filled(values: Mapping[str, float]) -> list[float]:
    return [_value(values, name) for name in PRECISIONS]


def _value(values: Mapping[str, float], precision: str) -> float:
    """A precision's value; what was not compared takes that of its like, else the highest of all."""
    found = values.get(precision, values.get(LIKE.get(precision, "")))
    return max(values.values()) if found is None else found


def _gain(before: Array, after: Array, rows: _Rows, seed: int) -> tuple[float, float, float]:
    gain = _log_loss(before, rows.worse) - _log_loss(after, rows.worse)
    low, high = interval(lambda i: _mean(gain[i], rows.weight[i]), len(gain), _RESAMPLES, seed)
    return _mean(gain, rows.weight), low, high


def _mean(values: Array, weight: Array) -> float:
    return float((values * weight).sum() / weight.sum())


def _log_loss(risk: Array, worse: Array) -> Array:
    return np.asarray(-(worse * np.log(risk) + (1 - worse) * np.log(1 - risk)), dtype=np.float64)


def _bounded(risk: Array) -> Array:
    return np.asarray(np.clip(risk, _LEAST_RISK, 1 - _LEAST_RISK), dtype=np.float64)


__all__ = ["LEAST_PAIRS", "LEAST_WORSE", "Adaption", "Moved", "Seen", "adapt"]

"""Training of the shipped artefacts on public outcomes: difficulty first, then each precision's base rate.

1. A model learns to order prompts by *gain* (score of a strong model minus that of a weak one), centred within each source,
   so that it learns which prompts are hard and not which benchmark they come from.
2. Recorded outcomes of one model at FP16, INT8 and INT4 say how often each precision loses, and the ordering is scaled to
   that (`calibration.Calibration`). Prompts used here are taken out of step 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from classifier import data
from classifier.artefact import Artefact, save
from classifier.calibration import Calibration
from classifier.card import card
from classifier.conversation import view
from classifier.drift import reference
from classifier.evaluate import Array, auc, calibration_error, interval
from classifier.features import NAMES, Features, extract
from classifier.fit import FITTERS, Examples, Platt, fit_platt, intercept_for, ranges
from classifier.folds import group_folds
from classifier.models import Model, build
from classifier.report import GENERAL, distributions, recommended, summary
from classifier.risks import PRECISIONS

_CLIP = 2.5
_SLOPE_FLOOR = 0.1
# Of 499 MMLU questions and 300 entity extractions, Llama-3.1-8B: right at FP16 and not at this precision
# (github.com/kristenmartino/llm-quantization-study, the whole study; the file here is a sample of it).
STUDY = {"int8": {"mmlu": (1, 499)}, "int4": {"mmlu": (27, 499), "extraction": (40, 300)}}
"""Losses and prompts by precision and task, of the whole study."""


@dataclass(frozen=True, slots=True)
class Trained:
    """Parameters, the calibration's content, and figures for the card."""

    parameters: dict[str, object]
    calibration: dict[str, object]
    figures: dict[str, object]


def features_of(requests: Sequence[Mapping[str, object]]) -> list[Features]:
    """Return the features of requests, as the classifier computes them when it serves."""
    return [extract(view(request)) for request in requests]


def examples(outcomes: Sequence[data.Outcome], features: Sequence[Features] | None = None) -> Examples:
    """Return training rows, each gain centred within its source (MMLU, GSM8K, each task of llmrouter)."""
    sources = np.array([outcome.source for outcome in outcomes])
    target: Array = np.array([outcome.gain for outcome in outcomes], dtype=np.float64)
    for source in np.unique(sources):
        target[sources == source] -= target[sources == source].mean()
    groups = [f"{outcome.source}/{outcome.group}" for outcome in outcomes]
    return Examples(
        features if features is not None else features_of([o.request for o in outcomes]),
        target,
        groups,
        sources=[outcome.source.split("/")[0] for outcome in outcomes],
    )


def training_outcomes(folder: Path) -> list[data.Outcome]:
    """Return the outcomes to learn difficulty from: MMLU, GSM8K, llmrouter; without prompts of the precision study."""
    held_out = {question_key(row.prompt) for row in data.precision(folder) if row.prompt}
    found = [*data.routellm(folder, "mmlu"), *data.routellm(folder, "gsm8k"), *data.llmrouter(folder)]
    return [outcome for outcome in found if question_key(_prompt(outcome)) not in held_out]


def question_key(prompt: str) -> str:
    """Return what two copies of one question share, whatever introduces or ends them."""
    text = prompt.removesuffix("Answer:").rstrip()
    return re.sub(r"\W+", "", text.lower())[-160:]


def train(folder: Path, kind: str, seed: int = 0, encoder: Path | None = None) -> Trained:
    """Fit a model of this kind and calibrate it. Raises `data.DataError` when a file is missing.

    `encoder` is the folder of a sentence encoder, for the kinds that need one.
    """
    learnt = training_outcomes(folder)
    rows = replace(examples(learnt), encoder=encoder)
    parameters = FITTERS[kind](rows, seed)
    model = build(kind, parameters)
    low, high = ranges(rows.matrix())
    study = [row for row in data.precision(folder) if row.prompt]
    features = features_of([data.chat(row.prompt) for row in study])
    scores = scores_of(model, features)
    mean, scale = float(scores.mean()), float(scores.std()) or 1.0
    z: Array = np.clip((scores - mean) / scale, -_CLIP, _CLIP)
    losses = {
        name: np.array([float(row.scores[name] < row.scores["fp16"]) for row in study]) for name in ("int8", "int4")
    }
    prior = slope_on_gain(learnt, rows, kind, seed) / 2
    if kind == "constant":
        platt = Platt(0.0, 0.0, fit_platt(z, losses["int4"], 0.0, 0.05).covariance)
    else:
        platt = fit_platt(z, losses["int4"], prior, max(prior, 0.1), _SLOPE_FLOOR)
    moved = platt.slope * z
    starts = {name: intercept_for(_rate(*STUDY[name]["mmlu"]), moved) for name in ("int8", "int4")}
    like = {"fp8": "int8", "int8": "int8", "nvfp4": "int4", "mxfp4": "int4", "int4": "int4"}
    shift = _logit(_rate(*STUDY["int4"]["extraction"])) - _logit(_rate(*STUDY["int4"]["mmlu"]))
    calibration: dict[str, object] = {
        "mean": mean,
        "scale": scale,
        "clip": _CLIP,
        "slope": platt.slope,
        "intercepts": [starts[like[name]] for name in PRECISIONS],
        # INT8 shows no such shift: of 150 extractions it lost 1 and won 2.
        "structured": [shift if like[name] == "int4" else 0.0 for name in PRECISIONS],
        "covariance": list(platt.covariance),
        "floor": -_CLIP,
        "han_shift": 0.0 if kind in ("constant", "random") else han_shift(folder, model),
        "low": [float(v) for v in low],
        "high": [float(v) for v in high],
    }
    if kind not in ("constant", "random"):
        calibration["floor"] = floor(folder, model, Calibration.from_content(calibration))
    return Trained(parameters, calibration, _figures(kind, z, losses, calibration, prior, len(learnt)))


def write(
    folder: Path, kind: str, path: Path, *, name: str, date: str, seed: int = 0, encoder: Path | None = None
) -> Artefact:
    """Train, write the artefact and its card (`.md` beside it), and return the artefact."""
    made = train(folder, kind, seed, encoder)
    content: dict[str, Any] = {
        "name": name,
        "date": date,
        "model": {"kind": kind, "parameters": made.parameters},
        "calibration": made.calibration,
        "labels": "task outcome (right or wrong)",
        "figures": made.figures,
        "seed": seed,
    }
    general = [request for source in GENERAL for request in data.general_prompts(folder)[source]]
    vectors = [item.vector for item in features_of(general)]
    risks = distributions(folder, content)
    content["reference"] = reference(vectors, np.concatenate([risks[source]["int4"] for source in GENERAL]).tolist())
    limits = recommended(risks)
    content["thresholds"] = {"recommended": limits, "by_source": summary(risks, limits)}
    artefact = save(path, content)
    path.with_suffix(".md").write_text(card(artefact), encoding="utf-8")
    return artefact


def scores_of(model: Model, features: Sequence[Features]) -> Array:
    """Return a model's scores."""
    return np.array([model.score(item) for item in features], dtype=np.float64)


def han_shift(folder: Path, model: Model) -> float:
    """Return what brings the median score of general Chinese prompts (per share of Chinese) to that of English ones."""
    prompts = data.general_prompts(folder)
    english = scores_of(model, features_of([*prompts["mt_bench"], *prompts["koala_vicuna"]]))
    chinese = features_of(prompts["belle_zh"])
    share = float(np.median([item.vector[NAMES.index("han_share")] for item in chinese]))
    return float(np.median(english) - np.median(scores_of(model, chinese))) / share


def floor(folder: Path, model: Model, calibration: Calibration) -> float:
    """Return the standardised score that four in five general prompts stay below: too high for INT4, low enough for INT8."""
    prompts = data.general_prompts(folder)
    features = features_of([request for source in GENERAL for request in prompts[source]])
    return float(np.quantile([calibration.standard(model.score(item), item) for item in features], 0.8))


def slope_on_gain(outcomes: Sequence[data.Outcome], rows: Examples, kind: str, seed: int) -> float:
    """Return the slope, in log-odds per standard deviation, of 'the strong model wins' on held-out MMLU subjects.

    The loss of precision is a small loss of ability, so this slope says how far a score can be worth anything for it.
    """
    folds = group_folds([outcome.group for outcome in outcomes], 4, seed)
    mmlu = np.array([outcome.source == "mmlu" for outcome in outcomes])
    wins = np.array([float(outcome.gain > 0) for outcome in outcomes])
    test = (folds == 0) & mmlu
    kept = np.flatnonzero(folds != 0).tolist()
    part = rows.part(kept)
    model = build(kind, FITTERS[kind](part, seed))
    scores = scores_of(model, [rows.features[i] for i in np.flatnonzero(test).tolist()])
    z = np.clip((scores - scores.mean()) / (scores.std() or 1.0), -_CLIP, _CLIP)
    return max(fit_platt(z, wins[test], 0.0, 10.0).slope, 0.0)


def _figures(
    kind: str, z: Array, losses: Mapping[str, Array], calibration: Mapping[str, Any], prior: float, learnt: int
) -> dict[str, object]:
    """What the per-prompt risk is worth on the study's prompts, which the ordering never saw."""
    loss = losses["int4"]
    risk = 1 / (1 + np.exp(-(calibration["intercepts"][-1] + calibration["slope"] * z)))
    low, high = interval(lambda i: auc(z[i], loss[i]), len(z), 1000, 0)
    try:
        value = auc(z, loss)
    except ValueError:
        value = float("nan")
    base = float(np.mean(loss))
    out_of_fold = cross_validated_risk(z, loss, prior)
    return {
        "training_prompts": learnt,
        "study_prompts": len(z),
        "int4_losses": int(loss.sum()),
        "int8_losses": int(losses["int8"].sum()),
        "slope": calibration["slope"],
        "slope_prior": prior,
        "auc_int4": value,
        "auc_int4_interval": [low, high],
        "log_loss_int4": _log_loss(out_of_fold, loss),
        "log_loss_base_rate": _log_loss(_leave_out_rates(loss), loss),
        "calibration_error_int4": calibration_error(risk, loss, 5),
        "base_rate_int4": base,
    }


def cross_validated_risk(z: Array, loss: Array, prior: float, folds: int = 10) -> Array:
    """Return each prompt's INT4 risk from a calibration that did not see it."""
    fold = np.arange(len(z)) % folds
    out = np.zeros(len(z))
    for number in range(folds):
        test = fold == number
        platt = fit_platt(z[~test], loss[~test], prior, max(prior, 0.1), _SLOPE_FLOOR)
        out[test] = 1 / (1 + np.exp(-(platt.intercept + platt.slope * z[test])))
    return out


def _leave_out_rates(loss: Array, folds: int = 10) -> Array:
    fold = np.arange(len(loss)) % folds
    return np.array([loss[fold != number].mean() for number in fold], dtype=np.float64)


def _log_loss(risk: Array, label: Array) -> float:
    return float(-(label * np.log(risk) + (1 - label) * np.log(1 - risk)).mean())


def _rate(lost: int, of: int) -> float:
    """Return a rate by Jeffreys' prior: never 0, and one loss more or less doesn't double it."""
    return (lost + 0.5) / (of + 1)


def _logit(p: float) -> float:
    return float(np.log(p / (1 - p)))


def _prompt(outcome: data.Outcome) -> str:
    messages = outcome.request["messages"]
    assert isinstance(messages, list)
    return str(messages[0]["content"])

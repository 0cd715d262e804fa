"""What `bitgear classifier eval` says of an artefact: figures with intervals, its cost-quality curves, its calibration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from classifier import data
from classifier.conversation import view
from classifier.evaluate import Array, auc, calibration_error, curve, figures, interval, random_figures
from classifier.features import extract
from classifier.models import Model
from classifier.models.length import Length
from classifier.plot import terminal
from classifier.scoring import Trained

BENCHMARKS = ("mmlu", "gsm8k", "mt_bench")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A report as text, and the curves in it."""

    text: str
    curves: Mapping[str, Mapping[str, list[float]]]
    """By benchmark and model: PGR at evenly spaced shares from 0 to 1."""


def evaluation(folder: Path, classifier: Trained, *, draw: str = "mt_bench") -> Evaluation:
    """Return an artefact's figures on the three benchmarks beside length, chance and the oracle, and on precisions.

    `draw` is the benchmark whose curve stands in the text. Raises `data.DataError` when a file is missing.
    """
    lines = [
        "benchmark  model       APGR  (95% interval)     CPT50%  (95% interval)   CPT80%  (95% interval)   area under deferral"
    ]
    curves: dict[str, dict[str, list[float]]] = {}
    for benchmark in BENCHMARKS:
        outcomes = data.routellm(folder, benchmark)
        features = [extract(view(outcome.request)) for outcome in outcomes]
        weak = np.array([outcome.weak for outcome in outcomes], dtype=np.float64)
        strong = np.array([outcome.strong for outcome in outcomes], dtype=np.float64)
        models: dict[str, Model] = {classifier.artefact.kind: classifier.artefact.model, "length": Length()}
        scores = {name: np.array([model.score(item) for item in features]) for name, model in models.items()}
        scores["oracle"] = strong - weak
        rows = {name: figures(score, weak, strong) for name, score in scores.items()}
        rows["random"] = random_figures(weak, strong)
        for name, row in rows.items():
            lines.append(
                f"{benchmark:10s} {name:10s} {row.apgr:6.3f}  ({row.apgr_low:.3f} to {row.apgr_high:.3f})"
                f"  {row.cpt50:6.1f}  ({row.cpt50_low:5.1f} to {row.cpt50_high:5.1f})"
                f"  {row.cpt80:6.1f}  ({row.cpt80_low:5.1f} to {row.cpt80_high:5.1f})  {row.quality_area:.4f}"
            )
        drawn = {name: curve(score, weak, strong) for name, score in scores.items()}
        curves[benchmark] = {name: [float(v) for v in values] for name, values in drawn.items()}
        curves[benchmark]["random"] = [0.0, 1.0]
    lines.append("Shipped artefacts learnt from mmlu and gsm8k, so those rows are too good; mt_bench is held out.")
    lines += ["", f"Gap recovered (PGR) by the share of {draw} that goes to the strong model:", terminal(curves[draw])]
    lines += ["", *_precisions(folder, classifier)]
    return Evaluation("\n".join(lines), curves)


def _precisions(folder: Path, classifier: Trained) -> list[str]:
    """What the risks are worth on recorded losses of precision, with bootstrap intervals over prompts."""
    rows = [row for row in data.precision(folder) if row.prompt]
    risks = [classifier.risk(data.chat(row.prompt)).by_precision for row in rows]
    lines = ["precision  lost        mean risk  AUC  (95% interval)    calibration error  (95% interval)"]
    for name in ("int8", "int4"):
        risk: Array = np.array([found[name] for found in risks], dtype=np.float64)
        lost: Array = np.array([float(row.scores[name] < row.scores["fp16"]) for row in rows])
        error = calibration_error(risk, lost, 5)
        low, high = interval(lambda i, r=risk, y=lost: calibration_error(r[i], y[i], 5), len(lost), 500, 0)  # type: ignore[misc]
        try:
            area = auc(risk, lost)
        except ValueError:
            shown = "not defined"
        else:
            least, most = interval(lambda i, r=risk, y=lost: auc(r[i], y[i]), len(lost), 500, 0)  # type: ignore[misc]
            shown = f"{area:.3f} ({least:.3f} to {most:.3f})"
        lines.append(
            f"{name:10s} {int(lost.sum()):3d} of {len(lost):4d} {risk.mean():10.4f}  {shown:22s} {error:.4f}  "
            f"({low:.4f} to {high:.4f})"
        )
    lines.append("Its calibration was fitted on these prompts; the card's figures are cross-validated.")
    return lines

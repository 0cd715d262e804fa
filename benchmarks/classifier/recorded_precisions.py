"""Llama-3.1-8B at FP16, Q8_0 and Q4_K_M, as recorded: exact paired intervals per task and precision.

    python benchmarks/classifier/recorded_precisions.py --data DATA [--margin 0.01]

Prints a table and writes `benchmarks/out/recorded_precisions.json`. Seconds.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from classifier import data
from classifier.evaluate import Array, auc, calibration_error, interval
from classifier.noninferiority import Paired, exact_bounds, mcnemar, paired, verdicts
from classifier.own import LEAST_CLASS, random_share, share_at
from classifier.scoring import Trained, load

NAMES = {"int8": "Q8_0", "int4": "Q4_K_M"}
WHOLE = {"int8 mmlu": (1, 2, 499), "int4 mmlu": (27, 19, 499), "int4 extraction": (40, 24, 300)}
"""Lost, won, prompts of the whole study (github.com/kristenmartino/llm-quantization-study); the file is a sample of it."""


def tested(rows: list[data.PrecisionOutcome], margin: float) -> dict[str, Paired]:
    """Return paired figures by precision and task; `extraction` scores are shares, so they are also tested as right or wrong."""
    found = {}
    for name in NAMES:
        for task in sorted({row.task for row in rows}):
            full = np.array([row.scores["fp16"] for row in rows if row.task == task])
            own = np.array([row.scores[name] for row in rows if row.task == task])
            found[f"{name} {task}"] = paired(full, own, margin)
            if not np.isin(np.concatenate([full, own]), (0.0, 1.0)).all():
                exact = [(side >= 1.0).astype(np.float64) for side in (full, own)]
                found[f"{name} {task}, wholly right"] = paired(exact[0], exact[1], margin)
    return found


def routed(rows: list[data.PrecisionOutcome], classifier: Trained, name: str) -> dict[str, object]:
    """Return what the shipped classifier is worth on the prompts that are public (the ordering never saw them)."""
    shown = [row for row in rows if row.prompt]
    full = np.array([row.scores["fp16"] for row in shown])
    own = np.array([row.scores[name] for row in shown])
    risk: Array = np.array([classifier.risk(data.chat(row.prompt)).by_precision[name] for row in shown])
    length: Array = np.array([float(len(row.prompt)) for row in shown])
    worse = (own < full).astype(np.float64)
    out: dict[str, object] = {"prompts": len(shown), "worse": int(worse.sum())}
    out["calibration_error"] = calibration_error(risk, worse, 5)
    for key, score in (("auc", risk), ("auc_length", length)):
        # With fewer of a class, an interval would be an ornament.
        few = min(worse.sum(), len(worse) - worse.sum()) < LEAST_CLASS
        out[key] = (
            None if few else [auc(score, worse), *interval(lambda i, s=score: auc(s[i], worse[i]), len(shown), 1000, 0)]
        )
    for level in (0.99, 0.95):
        out[str(level)] = {
            "classifier": share_at(risk, full, own, level)[0],
            "length": share_at(length, full, own, level)[0],
            "random": random_share(full, own, level),
        }
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with precision/")
    parser.add_argument("--margin", type=float, default=0.01, help="share of full precision's quality")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/recorded_precisions.json"))
    options = parser.parse_args()
    rows = data.precision(options.data)
    found = tested(rows, options.margin)
    said = verdicts(found)
    print("| precision, task | prompts | FP16 | mean loss (95%) | lost, won | McNemar p | verdict |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, row in found.items():
        pair = "-" if row.lost is None else f"{row.lost}, {row.won}"
        p_value = "-" if row.mcnemar is None else f"{row.mcnemar:.3f}"
        print(
            f"| {name} | {row.prompts} | {row.full_quality:.3f} | {row.mean_loss:+.4f} ({row.low:+.4f} to {row.high:+.4f}) "
            f"| {pair} | {p_value} | {said[name]} |"
        )
    whole = {}
    for name, (lost, won, size) in WHOLE.items():
        low, high = exact_bounds(lost, won, size, 0.025)
        p_value = mcnemar(lost, won)
        whole[name] = {"lost": lost, "won": won, "prompts": size, "low": low, "high": high, "mcnemar": p_value}
        print(
            f"| whole study: {name} | {size} | - | {(lost - won) / size:+.4f} ({low:+.4f} to {high:+.4f}) | {lost}, {won} "
            f"| {p_value:.3f} | - |"
        )
    classifier = load()
    worth = {name: routed(rows, classifier, name) for name in NAMES}
    for name, figures in worth.items():
        print(f"{name} ({NAMES[name]}), shipped classifier on public prompts: {json.dumps(figures)}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    result = {"margin": options.margin, "tests": {n: asdict(r) | {"verdict": said[n]} for n, r in found.items()}}
    options.out.write_text(json.dumps(result | {"whole": whole, "shipped": worth}, indent=1) + "\n")


if __name__ == "__main__":
    main()

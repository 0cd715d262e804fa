"""Do the estimators' intervals hold the truth whatever the loss looks like? `python -m benchmarks.tuning.shapes [--draws 200]`.

One variant; labels mostly at risks up to 0.2, and a candidate that takes all up to 0.3. The loss grows with the risk in
several ways, and labels tell it by degrees or only as same or lost. Printed per shape, labels and estimator: bias, standard
deviation and half width of the 95% interval, how often it holds the truth, and how often its lower end does (97.5% is what
it promises): what thresholds are bound by.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from router.tuning.estimators import ESTIMATORS, Sample, Setting
from router.tuning.estimators.outcome import prepare
from router.tuning.evidence import bin_of, quantiles

SHAPES: dict[str, Callable[[float], float]] = {
    "line": lambda r: 0.1 * r,
    "square": lambda r: 0.25 * r * r,
    "step at 0.25": lambda r: 0.04 * (r > 0.25),
    "none up to 0.2": lambda r: 0.01 + 0.15 * max(0.0, r - 0.2),
    "all by 0.2": lambda r: 0.2 * min(r, 0.2),
}
REQUESTS = 10_000
LOGGED, SOMETIMES, CANDIDATE = 0.2, 0.12, 0.3
"""Risk up to which every request is logged at the variant, share of the others that is, and the candidate's threshold."""
LABELLED = 0.3


class Traffic:
    """Requests' risks, in bins."""

    def __init__(self, rng: random.Random) -> None:
        self.risks = [rng.betavariate(2.0, 3.0) for _ in range(REQUESTS)]
        self.edges = quantiles(self.risks, 10)
        self.chances = [1.0 if r <= LOGGED else SOMETIMES for r in self.risks]

    def cells(self, risks: Sequence[float]) -> tuple[dict[tuple[int, int], float], dict[tuple[int, int], float]]:
        """Return share of all requests, and mean risk, by bin."""
        sums: dict[int, list[float]] = defaultdict(list)
        for risk in risks:
            sums[bin_of(risk, self.edges)].append(risk)
        mass = {(1, b): len(some) / len(self.risks) for b, some in sums.items()}
        return mass, {(1, b): fmean(some) for b, some in sums.items()}


def measured(shape: str, labels: int, whole: bool, draws: int, seed: int = 5) -> dict[str, dict[str, float]]:
    """Return each estimator's figures; differences are in units of quality."""
    rng = random.Random(seed)
    traffic, loss = Traffic(rng), SHAPES[shape]
    taken = [r for r in traffic.risks if r <= CANDIDATE]
    mass, risk = traffic.cells(taken)
    _, everywhere = traffic.cells(traffic.risks)
    real = -sum(map(loss, taken)) / len(traffic.risks)
    rows: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for _ in range(draws):
        drawn = rng.choices(traffic.risks, traffic.chances, k=labels)
        bins = [bin_of(r, traffic.edges) for r in drawn]
        counts: dict[int, int] = defaultdict(int)
        for b in bins:
            counts[b] += 1
        samples = []
        for i, (r, b) in enumerate(zip(drawn, bins, strict=True)):
            told = -float(rng.random() < loss(r)) if whole else rng.uniform(-0.085, 0.085) - loss(r)
            samples.append(Sample(1, b, counts[b] / labels * LABELLED, told, 1.0, i % 5, r))
        setting = Setting(labels, mass, risk, 0.95, prepare(samples, everywhere))
        for name, estimator in ESTIMATORS.items():
            found = estimator(setting)
            rows[name].append((found.mean - real, (found.upper - found.lower) / 2))
    return {
        name: {
            "bias": fmean(off for off, _ in some),
            "deviation": stdev(off for off, _ in some),
            "half": fmean(half for _, half in some),
            "holds": fmean(abs(off) <= half for off, half in some),
            "lower_holds": fmean(off <= half for off, half in some),
        }
        for name, some in rows.items()
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found: list[dict[str, Any]] = []
    for whole in (False, True):
        for shape in SHAPES:
            for labels in (300, 1500):
                for name, row in measured(shape, labels, whole, arguments.draws).items():
                    told = "same or lost" if whole else "degrees"
                    found.append({"labels": told, "shape": shape, "count": labels, "estimator": name, **row})
                    figures = "  ".join(f"{k} {v:+.4f}" for k, v in row.items())
                    print(f"{told:>12}  {shape:>14}  {labels:>5}  {name:>6}  {figures}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

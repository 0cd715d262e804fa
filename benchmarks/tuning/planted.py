"""Do jobs find what is planted? `python -m benchmarks.tuning.planted [--seeds 100] [--processes 2] [--json FILE]`.

Per seed: traffic under a logging policy, then jobs in turn, each on all records so far and each followed by traffic under
the thresholds that it chose. What the thresholds really do is measured on fresh traffic.
Printed: goodput against the oracle's after each job and the requests it took, how often the true quality meets the
bound, how often each estimator's interval holds the true quality, and what exploring and learning cost. With `--json` each seed is
written as it is done, and a run that was stopped goes on from there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import time
from collections.abc import Mapping, Sequence
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.tuning.world import FACTS, World, record, traffic, truth
from router.config.loop import TuningConfig
from router.tuning.analysis import analyse, value
from router.tuning.canary import timely
from router.tuning.candidates import Scale, Shares, beside, grid
from router.tuning.estimators import DECIDES
from router.tuning.estimators.types import quantile
from router.tuning.records import Record

WORLD = World(explore=0.2, shadow=0.8, noise=0.05)
LOGGED = {"int8": 0.22, "int4": 0.2}
SETTINGS = TuningConfig(max_step=0.3, min_records=500, min_labels=100)
POINTS = 3
REQUESTS = 2500
JOBS = 3
TRUTH = 20_000
"""Requests of fresh traffic on which thresholds are measured: the same for the oracle's and a job's. On fewer the oracle
would fit that traffic's own bursts."""
QUALITY = 60_000
"""Requests on which the true quality of the fixed policies is measured."""
POLICIES = ((LOGGED["int8"], LOGGED["int4"]), (0.3, 0.3), (0.15, 0.45))
"""Fixed policies whose estimates' intervals are held against the truth: as logged, bolder, and mostly the lowest."""

BOUND = -SETTINGS.margin * WORLD.level


def oracle(points: int = 11) -> dict[str, Any]:
    """Return the thresholds with the most true goodput whose true quality meets the bound: a grid, then finer around it."""
    scale = Scale(traffic(WORLD, 8000, random.Random(99)), FACTS)
    best: dict[str, Any] = {"goodput": -1.0}

    def look(wanted: Sequence[Shares]) -> None:
        for shares in wanted:
            thresholds = scale.thresholds(shares)
            found = truth(WORLD, thresholds, count=TRUTH)
            if found.quality >= BOUND and found.goodput > best["goodput"]:
                best.update({"thresholds": thresholds, "shares": shares, **found.__dict__})

    look(grid(2, points))
    step = 0.5 / (points - 1)
    for _ in range(4):
        look(beside(best["shares"], step))
        step /= 2
    return best


def one(seed: int, best: Mapping[str, float], jobs: int = JOBS) -> dict[str, Any]:
    """Return what one seed's jobs chose, in turn, the truth about it, and what learning cost against `best` thresholds."""
    rng = random.Random(1000 + seed)
    records: list[Record] = []
    thresholds: dict[str, float] = dict(LOGGED)
    steps = []
    for turn in range(jobs):
        arrived = traffic(WORLD, REQUESTS, rng, records[-1].at + 1.0 if records else 0.0)
        served = record(WORLD, arrived, thresholds, rng, prefix=f"t{turn}-")
        records = [*records, *sorted(served, key=lambda r: r.at)]
        greedy, oracles = (record(WORLD.but(explore=0.0), arrived, t, random.Random(seed)) for t in (thresholds, best))
        began = time.process_time()
        verdict = analyse(records, thresholds, FACTS, SETTINGS, points=POINTS, replayed=REQUESTS)
        seconds = time.process_time() - began
        assert verdict.choice is not None, verdict.reason
        chosen = verdict.choice.chosen
        thresholds = dict(chosen.thresholds)
        real = truth(WORLD, thresholds, count=TRUTH)
        steps.append(
            {
                "action": verdict.choice.action,
                "thresholds": thresholds,
                "requests": len(records),
                "labels": verdict.labels,
                "goodput": real.goodput,
                "quality": real.quality,
                "expected_goodput": chosen.goodput,
                "expected_quality": list(chosen.quality[DECIDES]),
                "model_error": verdict.model_error,
                "cpu_s": seconds,
                "lost_before": 1.0 - goodput(served) / goodput(oracles),
                "exploration_cost": 1.0 - goodput(served) / goodput(greedy),
            }
        )
    return {"seed": seed, "jobs": steps, "covered": covered(records[:REQUESTS])}


def goodput(records: Sequence[Record]) -> float:
    """Return tokens/s in time."""
    starts = [r.at - r.e2e_s for r in records]
    return sum(r.completion_tokens for r in records if timely(r)) / (max(starts) - min(starts))


@cache
def true_quality(int8: float, int4: float) -> float:
    """Return the true quality of a policy in the planted world, on much traffic."""
    return truth(WORLD, {"int8": int8, "int4": int4}, seed=8, count=QUALITY).quality


def covered(records: Sequence[Record]) -> dict[str, list[bool]]:
    """Return by estimator, whether its interval of each fixed policy holds the truth."""
    found: dict[str, list[bool]] = {}
    for int8, int4 in POLICIES:
        real = true_quality(int8, int4)
        estimates, _ = value(
            records, {"int8": int8, "int4": int4}, FACTS, SETTINGS, SETTINGS.confidence, replayed=len(records)
        )
        for name, estimate in estimates.items():
            found.setdefault(name, []).append(estimate.lower <= real <= estimate.upper)
    return found


def summarise(rows: Sequence[dict[str, Any]], best: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of the seeds so far."""
    out: dict[str, Any] = {"seeds": len(rows)}
    for turn in range(min(len(r["jobs"]) for r in rows)):
        at = [r["jobs"][turn] for r in rows]
        ratios = [s["goodput"] / best["goodput"] for s in at]
        out[f"job {turn + 1}: requests, labels (means)"] = (
            round(fmean(s["requests"] for s in at)),
            round(fmean(s["labels"] for s in at)),
        )
        out[f"job {turn + 1}: goodput/oracle mean, least"] = (round(fmean(ratios), 4), round(min(ratios), 4))
        out[f"job {turn + 1}: within 5% of the oracle"] = sum(x >= 0.95 for x in ratios)
        out[f"job {turn + 1}: bound holds"] = sum(s["quality"] >= BOUND for s in at)
        out[f"job {turn + 1}: worst quality"] = round(min(s["quality"] for s in at), 5)
    every = [s for r in rows for s in r["jobs"]]
    out["jobs: bound holds, of"] = (sum(s["quality"] >= BOUND for s in every), len(every))
    held = [s["expected_quality"][1] <= s["quality"] <= s["expected_quality"][2] for s in every]
    out["jobs: the chosen's interval holds its truth, of"] = (sum(held), len(held))
    out["CPU seconds a job"] = round(fmean(s["cpu_s"] for s in every), 2)
    for name in rows[0]["covered"]:
        told = [held for r in rows for held in r["covered"][name]]
        out[f"{name} interval holds the truth, of"] = (sum(told), len(told))
    for turn in range(min(len(r["jobs"]) for r in rows)):
        for name, key in (
            ("exploring costs", "exploration_cost"),
            ("goodput lost against the oracle's", "lost_before"),
        ):
            out[f"requests before job {turn + 1}: {name}"] = _spread([r["jobs"][turn][key] for r in rows])
    return out


def _spread(values: Sequence[float]) -> tuple[float, ...]:
    """Return the mean and its 95% interval."""
    mean = fmean(values)
    half = quantile(0.95, len(values) - 1) * stdev(values) / math.sqrt(len(values)) if len(values) > 2 else math.nan
    return round(mean, 4), round(mean - half, 4), round(mean + half, 4)


def main() -> None:
    """Run all seeds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json", type=Path, help="written after each seed; seeds in it are not run again")
    arguments = parser.parse_args()
    kept = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else {}
    best = kept.get("oracle") or oracle()
    rows: list[dict[str, Any]] = kept.get("rows", [])
    print(f"oracle: {best['goodput']:.0f} tokens/s at quality {best['quality']:+.4f}, bound {BOUND:+.4f}", flush=True)
    done = {r["seed"] for r in rows}
    seeds = [s for s in range(arguments.first, arguments.first + arguments.seeds) if s not in done]
    with get_context("spawn").Pool(arguments.processes) as pool:
        for row in pool.imap_unordered(partial(one, best=best["thresholds"]), seeds):
            rows.append(row)
            told = ", ".join(f"{s['goodput'] / best['goodput']:.3f} ({s['quality']:+.4f})" for s in row["jobs"])
            print(f"seed {row['seed']} ({len(rows)} done): {told}", flush=True)
            if arguments.json:
                part = arguments.json.with_suffix(".part")
                part.write_text(json.dumps({"oracle": best, "summary": summarise(rows, best), "rows": rows}, indent=1))
                os.replace(part, arguments.json)
    for name, figure in summarise(rows, best).items():
        print(f"{name:>42}  {figure}")


if __name__ == "__main__":
    main()

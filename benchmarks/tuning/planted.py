"""Do jobs find what is planted? `python -m benchmarks.tuning.planted [--seeds 100] [--processes 2] [--json FILE]`.

Per seed: traffic under a logging policy, then jobs in turn, each on all records so far and each followed by traffic under
the thresholds that it chose. What the thresholds really do is measured on fresh traffic.
Printed: goodput against the oracle's after each job and the requests it took, how often the true quality meets the
bound, how often each estimator's interval holds the true quality, and what exploring costs. With `--json` each seed is
written as it is done, and a run that was stopped goes on from there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import time
from collections.abc import Sequence
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.tuning.world import FACTS, World, record, traffic, truth
from router.config.loop import TuningConfig
from router.tuning.analysis import analyse, value
from router.tuning.canary import timely
from router.tuning.candidates import Scale, grid
from router.tuning.estimators.types import quantile
from router.tuning.records import Record

WORLD = World(explore=0.2, shadow=0.8, noise=0.05)
LOGGED = {"int8": 0.22, "int4": 0.2}
SETTINGS = TuningConfig(max_step=0.3, min_records=500, min_labels=100)
POINTS = 3
REQUESTS = 2500
JOBS = 3
TRUTH = 4000
"""Requests of fresh traffic on which thresholds are measured: the same for the oracle's and a job's."""

BOUND = -SETTINGS.margin * WORLD.level


def oracle(points: int = 11) -> dict[str, Any]:
    """Return the thresholds with the most true goodput whose true quality meets the bound, from a fine grid."""
    scale = Scale(traffic(WORLD, 8000, random.Random(99)), FACTS)
    best: dict[str, Any] = {"goodput": -1.0}
    for shares in grid(2, points):
        thresholds = scale.thresholds(shares)
        found = truth(WORLD, thresholds, count=TRUTH)
        if found.quality >= BOUND and found.goodput > best["goodput"]:
            best = {"thresholds": thresholds, "shares": shares, **found.__dict__}
    return best


def one(seed: int, jobs: int = JOBS) -> dict[str, Any]:
    """Return what one seed's jobs chose, in turn, and the truth about it."""
    rng = random.Random(1000 + seed)
    arrived = traffic(WORLD, REQUESTS, rng)
    first = record(WORLD, arrived, LOGGED, rng)
    records, thresholds = sorted(first, key=lambda r: r.at), dict(LOGGED)
    steps = []
    for turn in range(jobs):
        began = time.process_time()
        verdict = analyse(records, thresholds, FACTS, SETTINGS, points=POINTS, replayed=REQUESTS)
        seconds = time.process_time() - began
        assert verdict.choice is not None, verdict.reason
        chosen = verdict.choice.chosen
        real = truth(WORLD, chosen.thresholds, count=TRUTH)
        steps.append(
            {
                "action": verdict.choice.action,
                "thresholds": dict(chosen.thresholds),
                "requests": len(records),
                "labels": verdict.labels,
                "goodput": real.goodput,
                "quality": real.quality,
                "expected_goodput": chosen.goodput,
                "lower": chosen.quality["dr"].lower,
                "model_error": verdict.model_error,
                "cpu_s": seconds,
            }
        )
        if turn == jobs - 1:
            break
        thresholds = dict(chosen.thresholds)
        more = traffic(WORLD, REQUESTS, rng, records[-1].at + 1.0)
        made = record(WORLD, more, thresholds, rng, prefix=f"t{turn}-")
        records = [*records, *sorted(made, key=lambda r: r.at)]
    greedy = record(WORLD.but(explore=0.0), arrived, LOGGED, random.Random(seed))
    return {
        "seed": seed,
        "jobs": steps,
        "covered": covered(records[:REQUESTS], seed),
        "exploration_cost": 1.0 - goodput(first) / goodput(greedy),
    }


def goodput(records: Sequence[Record]) -> float:
    """Return tokens/s in time."""
    starts = [r.at - r.e2e_s for r in records]
    return sum(r.completion_tokens for r in records if timely(r)) / (max(starts) - min(starts))


@cache
def true_quality(int8: float, int4: float) -> float:
    """Return the true quality of a policy in the planted world, on much traffic."""
    return truth(WORLD, {"int8": int8, "int4": int4}, seed=8, count=6000).quality


def covered(records: Sequence[Record], seed: int) -> dict[str, bool]:
    """Return by estimator, whether its interval of one of three fixed policies holds the truth."""
    policies = ((LOGGED["int8"], LOGGED["int4"]), (0.3, 0.3), (0.15, 0.45))
    int8, int4 = policies[seed % len(policies)]
    real = true_quality(int8, int4)
    estimates, _ = value(
        records, {"int8": int8, "int4": int4}, FACTS, SETTINGS, SETTINGS.confidence, replayed=len(records)
    )
    return {name: estimate.lower <= real <= estimate.upper for name, estimate in estimates.items()}


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
    out["CPU seconds a job"] = round(fmean(s["cpu_s"] for s in every), 2)
    for name in rows[0]["covered"]:
        out[f"{name} interval holds the truth"] = sum(r["covered"][name] for r in rows)
    cost = [r["exploration_cost"] for r in rows]
    half = quantile(0.95, len(cost) - 1) * stdev(cost) / math.sqrt(len(cost)) if len(cost) > 2 else math.nan
    out["exploration's cost, 95% interval"] = (round(fmean(cost), 4), round(fmean(cost) - half, 4))
    out["exploration's cost, 95% interval"] += (round(fmean(cost) + half, 4),)
    return out


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
        for row in pool.imap_unordered(one, seeds):
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

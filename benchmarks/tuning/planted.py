"""Does a job find what is planted? `python -m benchmarks.tuning.planted [--seeds 100] [--json FILE]`.

Per seed: one record of traffic under a logging policy, one job without a step limit, and what its thresholds really do
on fresh traffic. Printed: goodput against the oracle's, how often the true quality meets the bound, how often each
estimator's interval holds the true quality, and what exploring cost.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.tuning.world import FACTS, World, record, traffic, truth
from router.config.loop import TuningConfig
from router.tuning.analysis import analyse, value
from router.tuning.candidates import Scale, grid
from router.tuning.replay import arrivals

WORLD = World(explore=0.2, shadow=0.8, noise=0.05)
LOGGED = {"int8": 0.22, "int4": 0.2}
SETTINGS = TuningConfig(max_step=1.0, min_records=500, min_labels=100)
POINTS = 6
REQUESTS = 2500


def oracle(world: World, points: int = 11, count: int = 4000) -> dict[str, Any]:
    """Return the thresholds with the most true goodput whose true quality meets the bound, from a fine grid."""
    scale = Scale(traffic(world, 8000, random.Random(99)), FACTS)
    bound = -SETTINGS.margin * world.level
    best: dict[str, Any] = {"goodput": -1.0}
    for shares in grid(2, points):
        thresholds = scale.thresholds(shares)
        found = truth(world, thresholds, count=count)
        if found.quality >= bound and found.goodput > best["goodput"]:
            best = {"thresholds": thresholds, "shares": shares, **found.__dict__}
    return best


def one(seed: int, world: World = WORLD, requests: int = REQUESTS, points: int = POINTS) -> dict[str, Any]:
    """Return what one seed's job chose, and the truth about it."""
    rng = random.Random(1000 + seed)
    records = record(world, traffic(world, requests, rng), LOGGED, rng)
    began = time.process_time()
    verdict = analyse(records, LOGGED, FACTS, SETTINGS, points=points, replayed=requests)
    seconds = time.process_time() - began
    assert verdict.choice is not None, verdict.reason
    chosen = verdict.choice.chosen
    real = truth(world, chosen.thresholds, seed=7, count=requests)
    return {
        "seed": seed,
        "action": verdict.choice.action,
        "shares": chosen.shares,
        "thresholds": chosen.thresholds,
        "expected_goodput": chosen.goodput,
        "goodput": real.goodput,
        "quality": real.quality,
        "labels": verdict.labels,
        "cpu_s": seconds,
        "model_error": verdict.model_error,
        "covered": covered(records, seed),
    }


@cache
def true_quality(int8: float, int4: float) -> float:
    """Return the true quality of a policy in the planted world, on much traffic."""
    return truth(WORLD, {"int8": int8, "int4": int4}, seed=8, count=10_000).quality


def covered(records: list[Any], seed: int) -> dict[str, bool]:
    """Return by estimator, whether its interval of one of three fixed policies holds the truth."""
    policies = ((LOGGED["int8"], LOGGED["int4"]), (0.3, 0.3), (0.15, 0.45))
    int8, int4 = policies[seed % len(policies)]
    real = true_quality(int8, int4)
    estimates, _ = value(
        records, {"int8": int8, "int4": int4}, FACTS, SETTINGS, SETTINGS.confidence, replayed=len(records)
    )
    return {name: estimate.lower <= real <= estimate.upper for name, estimate in estimates.items()}


def exploration_cost(world: World = WORLD, seeds: int = 4, requests: int = REQUESTS) -> float:
    """Return the share of goodput that exploring costs under the logging policy."""
    lost = []
    for seed in range(seeds):
        good = []
        for explore in (world.explore, 0.0):
            rng = random.Random(500 + seed)
            made = traffic(world, requests, rng)
            records = record(world.but(explore=explore), made, LOGGED, random.Random(seed))
            span = made[-1].at - made[0].at
            ready = arrivals(records, FACTS)
            by_start = sorted(records, key=lambda r: r.at - r.e2e_s)
            good.append(
                math.fsum(
                    r.completion_tokens
                    for r, a in zip(by_start, ready, strict=True)
                    if (r.ttft_s or 0.0) <= a.ttft_s and r.e2e_s <= a.e2e_s
                )
                / span
            )
        lost.append(1.0 - good[0] / good[1])
    return fmean(lost)


def main() -> None:
    """Run all seeds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    best = oracle(WORLD)
    bound = -SETTINGS.margin * WORLD.level
    print(f"oracle: {best['goodput']:.0f} tokens/s at quality {best['quality']:+.4f}, bound {bound:+.4f}", flush=True)
    rows = []
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        rows.append(one(seed))
        print(
            f"seed {seed}: {rows[-1]['goodput'] / best['goodput']:.3f} of the oracle, {rows[-1]['quality']:+.4f}",
            flush=True,
        )
    summary = summarise(rows, best, bound)
    summary["exploration_cost"] = exploration_cost()
    for name, figure in summary.items():
        print(f"{name:>32}  {figure:.4g}" if isinstance(figure, float) else f"{name:>32}  {figure}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"oracle": best, "summary": summary, "rows": rows}, indent=1))


def summarise(rows: list[dict[str, Any]], best: dict[str, Any], bound: float) -> dict[str, Any]:
    """Return the figures of all seeds."""
    ratios = sorted(r["goodput"] / best["goodput"] for r in rows)
    out: dict[str, Any] = {
        "seeds": len(rows),
        "goodput/oracle mean": fmean(ratios),
        "goodput/oracle least": ratios[0],
        "within 5% of the oracle": sum(r >= 0.95 for r in ratios),
        "bound holds": sum(r["quality"] >= bound for r in rows),
        "labels": fmean(r["labels"] for r in rows),
        "CPU seconds a job": fmean(r["cpu_s"] for r in rows),
    }
    for name in rows[0]["covered"]:
        out[f"{name} interval holds the truth"] = sum(r["covered"][name] for r in rows)
    return out


if __name__ == "__main__":
    main()

"""Trace replay: Bitgear against one precision for all, random, static thresholds and load-only switching, at equal hardware.

    python -m benchmarks.trace.replay --data DATA [--traffic chat] [--devices 6] [--loads 0.6,0.9,1.2,1.5,2] [--requests N]

Real arrival times and lengths (Azure LLM inference trace), on simulated H100-like devices (`benchmarks/world/`). Load 1 is
the rate at which `devices` devices at FP16 saturate (closed form, `benchmarks/world/hardware.py`). Prints a table and writes
`benchmarks/out/trace_TRAFFIC.json` and `.svg`. Quality is planted; the same run is scored under several truths, since no
decision here depends on the quality of an answer.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.harness.report import OUT, table, write
from benchmarks.trace.contestants import Contestant, contestants, drawn
from benchmarks.trace.plot import chart
from benchmarks.trace.workload import Workload, truths, workload
from benchmarks.world.hardware import VariantSpec, saturation
from benchmarks.world.measures import Measures, measure
from benchmarks.world.truth import Truth
from benchmarks.world.world import Served, World, with_scenarios
from router.decision.types import Scenario

HEADS = (
    "load",
    "policy",
    "goodput req/s",
    "goodput tok/s",
    "SLO missed",
    "TTFT p50 s",
    "TTFT p95 s",
    "quality / FP16: planted (95% as seen)",
    "fp16 / int8 / int4",
)


def run(contestant: Contestant, load: Workload, rate: float, truth: Truth, seed: int) -> World:
    """Return the world after all requests came; those inside a minute after the last arrival were not served."""
    arrivals = load.at_rate(rate)
    config = with_scenarios(realtime={"overload": "refuse" if contestant.refuses else "serve"})
    world = World(
        contestant.specs(),
        truth,
        thresholds=contestant.thresholds,
        policy=contestant.policy,
        config=config,
        seed=seed,
    )
    world.run(arrivals, until=arrivals[-1].at + 60.0)
    return world


def scored(rows: Sequence[Served], truth: Truth, scenarios: Mapping[str, Scenario]) -> Measures:
    """Return the figures of the same answers under another truth."""
    return measure([s._replace(worth=truth.worth(s.precision, s.arrival, s.index)) for s in rows], scenarios)


def _line(result: Mapping[str, Any]) -> list[str]:
    shares = " / ".join(f"{100 * result['shares'].get(p, 0.0):.0f}" for p in ("fp16", "int8", "int4"))
    return [
        f"{result['load']:g}",
        result["policy"],
        f"{result['goodput_rps']:.1f}",
        f"{result['goodput_tps']:,.0f}",
        f"{100 * result['violations']:.2f}%",
        f"{result['ttft_p50']:.3f}",
        f"{result['ttft_p95']:.2f}",
        f"{result['relative_expected']:.4f} ({result['relative_low']:.4f} to {result['relative_high']:.4f})",
        shares,
    ]


def _earlier(name: str) -> list[dict[str, Any]]:
    path = OUT / f"{name}.json"
    found: list[dict[str, Any]] = json.loads(path.read_text())["results"] if path.exists() else []
    return found


def main() -> int:
    """Run all; 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of public data, with traces/ in it")
    parser.add_argument("--traffic", choices=("chat", "mixed"), default="chat")
    parser.add_argument("--devices", type=int, default=6, help="in all, divisible by 6")
    parser.add_argument("--loads", default="0.6,0.9,1.2,1.5,2")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, help="only the trace's first so many requests")
    parser.add_argument("--add", action="store_true", help="keep what an earlier run wrote for other loads")
    args = parser.parse_args()
    load = workload(args.data, args.traffic, seed=args.seed, limit=args.requests)
    planted = truths(args.data, args.seed)
    first = next(iter(planted.values()))
    capacity = args.devices * saturation(VariantSpec("fp16"), *load.lengths)
    print(
        f"{len(load.rows)} requests, mean {load.lengths[0]:.0f} + {load.lengths[1]:.0f} tokens; load 1 is {capacity:.1f} req/s"
    )
    loads = [float(x) for x in args.loads.split(",")]
    name = f"trace_{args.traffic}"
    results = [r for r in (_earlier(name) if args.add else []) if r["load"] not in loads]
    began = time.perf_counter()
    for factor in loads:
        rate = capacity * factor
        shares: Mapping[str, float] = {}
        chosen = contestants(args.devices, load.thresholds)
        for contestant in chosen:
            world = run(contestant, load, rate, first, args.seed)
            results.append(_result(factor, rate, contestant, world, planted))
            print(" | ".join(_line(results[-1])), flush=True)
            if contestant.name == "Bitgear":
                shares = measure(world.served, world.scenarios).shares
                chosen.append(Contestant("random, same shares", contestant.fleet, drawn(shares, args.seed), {}))
    results.sort(key=lambda r: float(r["load"]))
    print("\n" + table(HEADS, [_line(r) for r in results]))
    print("\n" + _sensitivity(results))
    content = {
        "traffic": args.traffic,
        "requests": len(load.rows),
        "seed": args.seed,
        "devices": args.devices,
        "capacity_rps": capacity,
        "thresholds": dict(load.thresholds),
        "truths": {name: asdict(truth) for name, truth in planted.items()},
        "wall_s": time.perf_counter() - began,
        "results": results,
    }
    path = write(name, content)
    (OUT / f"{name}.svg").write_text(chart(results, args.traffic))
    print(f"\n{path} and {path.with_suffix('.svg')}")
    return 0


def _result(
    factor: float, rate: float, contestant: Contestant, world: World, planted: Mapping[str, Truth]
) -> dict[str, Any]:
    figures = measure(world.served, world.scenarios)
    by_scenario = {
        name: asdict(measure(rows, world.scenarios))
        for name in world.scenarios
        if (rows := [s for s in world.served if s.arrival.scenario == name])
    }
    relative = {}
    for name, truth in planted.items():
        m = scored(world.served, truth, world.scenarios)
        relative[name] = [m.relative, m.relative_low, m.relative_high, m.relative_expected]
    return {
        "load": factor,
        "rate_rps": rate,
        "policy": contestant.name,
        "fleet": dict(contestant.fleet),
        **asdict(figures),
        "by_scenario": by_scenario,
        "relative_by_truth": relative,
    }


def _sensitivity(results: Sequence[Mapping[str, Any]]) -> str:
    names = list(results[0]["relative_by_truth"])
    lines = [
        [f"{r['load']:g}", r["policy"], *(f"{r['relative_by_truth'][name][3]:.4f}" for name in names)] for r in results
    ]
    return "Quality over all-FP16's (planted expectation), by truth\n" + table(("load", "policy", *names), lines)


if __name__ == "__main__":
    raise SystemExit(main())

"""Trace replay: Bitgear against one precision for all, random, static thresholds and load-only switching, at equal hardware.

    python -m benchmarks.trace.replay --data DATA [--traffic mixed] [--devices 6] [--loads 0.6,0.9,1.2,1.5,2] [--add]

Real arrival times and lengths (Azure LLM inference trace), on simulated H100-like devices (`benchmarks/world/`). Tuning jobs
learn on the trace's first `--learn` requests; what is reported comes from `--parts` later parts of `--requests` each, every
one with a seed of its own. Load 1 is the rate at which `devices` devices at FP16 saturate with the part's lengths (closed
form, `benchmarks/world/hardware.py`). Prints a table and writes `benchmarks/out/trace_TRAFFIC.json` (after every load and
part) and `.svg`. Quality is planted; the same run is scored under several truths.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.harness.report import OUT, table, write
from benchmarks.trace.contestants import Contestant, contestants, drawn, fleets
from benchmarks.trace.plot import chart
from benchmarks.trace.summary import HEADS, lines, sensitivity, summary
from benchmarks.trace.tuned import Tuned, attach, tune
from benchmarks.trace.workload import Workload, truths, workload
from benchmarks.world.hardware import VariantSpec, saturation
from benchmarks.world.measures import Measures, measure
from benchmarks.world.scenarios import with_scenarios
from benchmarks.world.served import Served
from benchmarks.world.truth import Truth
from benchmarks.world.world import World
from router.decision.types import Scenario

LEARNING_LOAD = 1.2
"""Where the jobs learn: below saturation no thresholds promise more goodput than others."""


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
    if contestant.bounds:
        attach(world, contestant.thresholds, contestant.bounds)
    world.run(arrivals, until=arrivals[-1].at + 60.0)
    return world


def scored(rows: Sequence[Served], truth: Truth, scenarios: Mapping[str, Scenario]) -> Measures:
    """Return the figures of the same answers under another truth."""
    return measure([s._replace(worth=truth.worth(s.precision, s.arrival, s.index)) for s in rows], scenarios)


def capacity(devices: int, load: Workload) -> float:
    """Return the requests/s at load 1."""
    return devices * saturation(VariantSpec("fp16"), *load.lengths)


def learnt(devices: int, load: Workload, truth: Truth, seed: int) -> dict[str, Tuned]:
    """Return what tuning jobs find on this traffic, by name of fleet."""
    rate = LEARNING_LOAD * capacity(devices, load)
    return {
        name: tune([VariantSpec(p, n) for p, n in fleet.items()], load, rate, load.thresholds, truth, seed)
        for name, fleet in fleets(devices).items()
    }


def compare(
    load: Workload, factor: float, part: int, devices: int, tuned: Mapping[str, Tuned], planted: Mapping[str, Truth]
) -> list[dict[str, Any]]:
    """Return every contestant's result on one part at one load."""
    rate = factor * capacity(devices, load)
    first = next(iter(planted.values()))
    found = []
    chosen = contestants(devices, load.thresholds, tuned)
    for contestant in chosen:
        world = run(contestant, load, rate, first, part)
        found.append(_result(factor, part, rate, contestant, world, planted))
        if contestant.name == "Bitgear":
            shares = measure(world.served, world.scenarios).shares
            chosen.append(Contestant("random, same shares", contestant.fleet, drawn(shares, part), {}))
    return found


def _result(
    factor: float, part: int, rate: float, contestant: Contestant, world: World, planted: Mapping[str, Truth]
) -> dict[str, Any]:
    rows = {name: [s for s in world.served if s.arrival.scenario == name] for name in world.scenarios}
    last = max(s.arrival.at for s in world.served)
    figures = measure(world.served, world.scenarios)
    relative = {}
    for name, truth in planted.items():
        m = scored(world.served, truth, world.scenarios)
        relative[name] = [m.relative, m.relative_low, m.relative_high, m.relative_expected]
    batch = [s.arrival for s in rows["batch"] if s.done and s.ended <= last]
    return {
        "load": factor,
        "part": part,
        "rate_rps": rate,
        "policy": contestant.name,
        "fleet": dict(contestant.fleet),
        **asdict(figures),
        "by_scenario": {name: asdict(measure(some, world.scenarios)) for name, some in rows.items() if some},
        "batch_tps": sum(a.prompt_tokens + a.output_tokens for a in batch) / figures.span_s,
        "batch_offered_tps": sum(s.arrival.prompt_tokens + s.arrival.output_tokens for s in rows["batch"])
        / figures.span_s,
        "relative_by_truth": relative,
    }


def _learnt(args: argparse.Namespace) -> dict[str, Tuned]:
    """Return what tuning finds in the chat traffic's first part; kept beside the results, since it takes a minute."""
    key = {k: getattr(args, k) for k in ("seed", "devices", "learn")}
    path = OUT / "trace_tuned.json"
    if path.exists() and (kept := json.loads(path.read_text()))["key"] == key:
        return {
            fleet: Tuned(t["thresholds"], {p: (b[0], b[1]) for p, b in t["bounds"].items()}, tuple(t["story"]))
            for fleet, t in kept["tuned"].items()
        }
    load = workload(args.data, "chat", seed=args.seed).part(0, args.learn)
    found = learnt(args.devices, load, next(iter(truths(args.data, args.seed).values())), args.seed)
    write("trace_tuned", {"key": key, "tuned": {fleet: t._asdict() for fleet, t in found.items()}})
    return found


def _earlier(name: str) -> list[dict[str, Any]]:
    path = OUT / f"{name}.json"
    found: list[dict[str, Any]] = json.loads(path.read_text())["results"] if path.exists() else []
    return found


def _all(args: argparse.Namespace, load: Workload, tuned: Mapping[str, Tuned]) -> Iterator[list[dict[str, Any]]]:
    planted = truths(args.data, args.seed)
    with ProcessPoolExecutor(args.processes) as pool:
        waiting = []
        for factor in (float(x) for x in args.loads.split(",")):
            for part in range(args.parts):
                rows = load.part(args.learn + part * args.requests, args.requests)
                waiting.append(pool.submit(compare, rows, factor, part + 1, args.devices, tuned, planted))
        for one in as_completed(waiting):
            yield one.result()


def main() -> int:
    """Run all; 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of public data, with traces/ in it")
    parser.add_argument("--traffic", choices=("chat", "mixed"), default="chat")
    parser.add_argument("--devices", type=int, default=6, help="in all, divisible by 6")
    parser.add_argument("--loads", default="0.6,0.9,1.2,1.5,2")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--learn", type=int, default=4000, help="chat requests that tuning learns on: the first ones")
    parser.add_argument("--parts", type=int, default=3)
    parser.add_argument("--requests", type=int, default=5000, help="of each part")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--add", action="store_true", help="keep what an earlier run wrote for other loads")
    args = parser.parse_args()
    load = workload(args.data, args.traffic, seed=args.seed)
    name = f"trace_{args.traffic}"
    loads = [float(x) for x in args.loads.split(",")]
    results = [r for r in (_earlier(name) if args.add else []) if r["load"] not in loads]
    planted = truths(args.data, args.seed)
    tuned = _learnt(args)
    for fleet, found in tuned.items():
        print(f"{fleet}: thresholds {dict(found.thresholds)}, bounds {dict(found.bounds)}")
        print(*(f"  job {i + 1}: {told}" for i, told in enumerate(found.story)), sep="\n", flush=True)
    content: dict[str, Any] = {
        **{k: getattr(args, k) for k in ("traffic", "seed", "devices", "learn", "parts", "requests")},
        "thresholds": dict(load.thresholds),
        "tuned": {fleet: found._asdict() for fleet, found in tuned.items()},
        "truths": {name: asdict(truth) for name, truth in planted.items()},
    }
    for found_results in _all(args, load, tuned):
        results += found_results
        results.sort(key=lambda r: (float(r["load"]), int(r["part"])))
        path = write(name, {**content, "results": results})
        print(f"load {found_results[0]['load']:g}, part {found_results[0]['part']} done", flush=True)
    rows = summary(results)
    print("\n" + table(HEADS, lines(rows)))
    print("\n" + sensitivity(results))
    (OUT / f"{name}.svg").write_text(chart(rows, args.traffic))
    print(f"\n{path} and {path.with_suffix('.svg')}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

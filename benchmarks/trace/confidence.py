"""Whether it pays to judge "in time" by a high quantile of what comes, and not by what is foretold.

    python -m benchmarks.trace.confidence --data DATA [--traffic mixed] [--loads 0.6,0.8,1,1.2,1.5]

The trace replay's requests, devices and decisions (`replay.py`), judged in several ways. `foretold`: as the proxy does it.
`likeliest`: where no variant is in time, the one that comes nearest to its targets, while that is within twice of them, and not
the one with the shortest answer. `TTFT 0.9`: a first token is taken to come `k` times as late as foretold, and `length 0.95`: an
answer to be as long as one in twenty is, not one in ten; both with `likeliest`. Each `k` is one number of one variant: the 0.9
quantile of true TTFTs as a multiple of foretold ones, by stochastic descent on the quantile's loss (R. Koenker and
G. Bassett, "Regression quantiles", Econometrica 1978), long waits weighing more than short ones. Prints a table, and what the
missed requests had been foretold; writes `benchmarks/out/confidence_TRAFFIC.json`.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.harness.report import table, write
from benchmarks.trace.contestants import fleets
from benchmarks.trace.replay import capacity
from benchmarks.trace.workload import Workload, truths, workload
from benchmarks.world.hardware import VariantSpec
from benchmarks.world.measures import measure, met
from benchmarks.world.scenarios import with_scenarios
from benchmarks.world.served import Served
from benchmarks.world.truth import Truth
from benchmarks.world.world import World
from router.decision import Decision, Inputs
from router.decision.candidates import eligible, judge
from router.decision.policies import adaptive
from router.decision.types import Candidate, Scenario

WAYS: Mapping[str, tuple[bool, float | None, float | None]] = {
    "foretold": (False, None, None),
    "likeliest": (True, None, None),
    "TTFT 0.9": (True, 0.9, None),
    "length 0.95": (True, None, 0.95),
}
"""Name: (the likeliest where none is in time, quantile of TTFT, quantile of the answer's length)."""
_NEAR = 2.0
"""Beyond this many times its targets no request is met: then the fastest, as before."""
_STEP = 0.05


@dataclass
class Judge:
    """The adaptive policy with another "in time". `learn` takes each request as it ends."""

    likeliest: bool
    quantile: float | None
    length: float | None
    factors: dict[str, float] = field(default_factory=dict)
    long_tokens: float = 400.0
    mean_tokens: float = 200.0

    def decide(self, inputs: Inputs) -> Decision:
        """Return the decision."""
        found, scenario = judge(inputs), inputs.scenario
        over = {c.variant: self._over(inputs, c) for c in found}
        if self.quantile is not None or self.length is not None:
            found = tuple(c._replace(in_time=over[c.variant] <= 1.0) for c in found)
        decision = adaptive.choose(inputs, found)
        if decision.reason != "latency_missed" or not self.likeliest or scenario.refuses:
            return decision
        pool, _ = eligible(inputs, found)
        nearest = min((c for _, c in pool), key=lambda c: (over[c.variant], -c.rank, c.variant))
        return decision._replace(variant=nearest.variant) if over[nearest.variant] <= _NEAR else decision

    def learn(self, served: Served) -> None:
        """Take in what came of a request."""
        if not served.done:
            return
        tokens = served.arrival.output_tokens
        self.mean_tokens += _STEP * (tokens - self.mean_tokens)
        if self.length is not None:
            up = self.length if tokens > self.long_tokens else self.length - 1.0
            self.long_tokens = max(1.0, self.long_tokens + up * _STEP * self.mean_tokens)
        foretold = chosen(served).ttft_s
        if self.quantile is not None and foretold > 0.0:
            factor = self.factors.get(served.variant, 1.0)
            up = self.quantile if served.ttft_s > factor * foretold else self.quantile - 1.0
            self.factors[served.variant] = min(4.0, max(1.0, factor * math.exp(_STEP * min(1.0, foretold) * up)))

    def _over(self, inputs: Inputs, candidate: Candidate) -> float:
        """Return the worst of foretold time over target."""
        request, scenario = inputs.request, inputs.scenario
        ttft = candidate.ttft_s * self.factors.get(candidate.variant, 1.0)
        long = request.long_output_tokens if self.length is None else max(self.long_tokens, self.mean_tokens)
        itl = (candidate.e2e_s - candidate.ttft_s) / max(1, request.output_tokens - 1)
        e2e = ttft + itl * max(0.0, max(float(request.output_tokens), long) - 1.0)
        return max(ttft / (scenario.ttft_s or math.inf), e2e / (scenario.e2e_s or math.inf))


def chosen(served: Served) -> Candidate:
    """Return what was foretold of the variant that was chosen."""
    return next(c for c in served.decision.candidates if c.variant == served.decision.variant)


def kinds(missed: Sequence[Served], scenario: Scenario) -> dict[str, int]:
    """Return how many had been foretold to be late everywhere, missed the first token, and missed the whole answer alone."""
    found: Counter[str] = Counter()
    for served in missed:
        if served.decision.reason == "latency_missed":
            found["late everywhere"] += 1
        elif scenario.ttft_s is not None and served.ttft_s > scenario.ttft_s:
            found["first token"] += 1
        else:
            found["whole answer"] += 1
    return dict(found)


def one(way: str, fleet: str, load: float, part: int, rows: Workload, devices: int, truth: Truth) -> dict[str, Any]:
    """Return the figures of one way on one fleet at one load."""
    judging = Judge(*WAYS[way])
    arrivals = rows.at_rate(load * capacity(devices, rows))
    world = World(
        [VariantSpec(p, n) for p, n in fleets(devices)[fleet].items()],
        truth,
        thresholds=rows.thresholds,
        policy=judging.decide,
        config=with_scenarios(),
        seed=part,
    )
    world.recent = judging.learn
    world.run(arrivals, until=arrivals[-1].at + 60.0)
    chat = [s for s in world.served if s.arrival.scenario == "realtime"]
    figures = measure(chat, world.scenarios)
    return {
        "way": way,
        "fleet": fleet,
        "load": load,
        "part": part,
        "missed": figures.violations,
        "goodput_rps": figures.goodput_rps,
        "quality": figures.relative_expected,
        "shares": dict(figures.shares),
        "kinds": kinds([s for s in chat if not met(s, world.scenarios)], world.scenarios["realtime"]),
    }


def lines(results: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return one row per fleet, load and way: means over parts, and the difference to `foretold` with its standard error."""
    base = {(r["fleet"], r["load"], r["part"]): r for r in results if r["way"] == "foretold"}
    found = []
    for fleet, load, way in dict.fromkeys((r["fleet"], r["load"], r["way"]) for r in results):
        parts = [r for r in results if (r["fleet"], r["load"], r["way"]) == (fleet, load, way)]
        more = [100 * (r["missed"] - base[fleet, load, r["part"]]["missed"]) for r in parts]
        gain = [100 * (r["goodput_rps"] / base[fleet, load, r["part"]]["goodput_rps"] - 1) for r in parts]
        counts = sum((Counter(r["kinds"]) for r in parts), Counter[str]())
        found.append(
            [
                fleet,
                f"{load:g}",
                way,
                f"{fmean(r['missed'] for r in parts):.2%}",
                _difference(more),
                f"{fmean(r['goodput_rps'] for r in parts):.1f}",
                _difference(gain),
                f"{fmean(r['quality'] for r in parts):.4f}",
                " / ".join(str(counts[k]) for k in ("late everywhere", "first token", "whole answer")),
            ]
        )
    return found


def _difference(values: Sequence[float]) -> str:
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{fmean(values):+.2f} ± {error:.2f}"


def main() -> int:
    """Run all; 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of public data, with traces/ in it")
    parser.add_argument("--traffic", choices=("chat", "mixed"), default="chat")
    parser.add_argument("--devices", type=int, default=6, help="in all, divisible by 6")
    parser.add_argument("--loads", default="0.6,0.8,1,1.2,1.5")
    parser.add_argument("--fleets", default="even,most INT8,advised")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--parts", type=int, default=3)
    parser.add_argument("--requests", type=int, default=5000, help="of each part")
    parser.add_argument("--skip", type=int, default=4000, help="first requests left out, as the trace replay does")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    load = workload(args.data, args.traffic, seed=args.seed)
    truth = next(iter(truths(args.data, args.seed).values()))
    parts = {p + 1: load.part(args.skip + p * args.requests, args.requests) for p in range(args.parts)}
    with ProcessPoolExecutor(args.processes) as pool:
        waiting = [
            pool.submit(one, way, fleet, float(factor), part, rows, args.devices, truth)
            for fleet in args.fleets.split(",")
            for factor in args.loads.split(",")
            for part, rows in parts.items()
            for way in args.ways.split(",")
        ]
        results = [job.result() for job in waiting]
    heads = (
        "fleet",
        "load",
        "judged by",
        "missed",
        "points",
        "goodput",
        "%",
        "quality",
        "late everywhere / TTFT / answer",
    )
    print(table(heads, lines(results)))
    print(f"\n{write(f'confidence_{args.traffic}', {**vars(args), 'data': str(args.data), 'results': results})}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""How well TTFT is foretold where several workers share one replica: what decisions predicted against what came.

    python -m benchmarks.world.waits [--workers 1,2,8] [--loads 0.3,0.6,0.9] [--prompt 2000] [--output 30]

Poisson arrivals go to the workers at random; each knows its own requests and reads the replica's figures once a second
(`world.py`). Load 1 is the rate at which the replica saturates (`hardware.py`); lengths are log-normal. Prints a table and
writes `benchmarks/out/waits_PROMPT_OUTPUT.json`. The difference is foretold minus true, so above 0 where a wait is foretold
that does not come.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from statistics import fmean, quantiles

from benchmarks.harness.report import table, write
from benchmarks.world.hardware import VariantSpec, saturation
from benchmarks.world.traffic import beta_risks, lognormal, mixed, poisson
from benchmarks.world.truth import Truth
from benchmarks.world.world import World

_WARM_UP_S = 30.0


@dataclass(frozen=True)
class Waits:
    """Seconds of TTFT over all requests but the first."""

    workers: int
    load: float
    requests: int
    true: float
    foretold: float
    difference: float
    difference_p90: float
    absolute: float
    """Mean of the difference without its sign."""


def waits(workers: int, load: float, prompt: float, output: float, seconds: float, seeds: int) -> Waits:
    """Return what one replica at FP16 showed, over runs of `seconds` each."""
    spec = VariantSpec("fp16")
    rate = load * saturation(spec, prompt, output)
    pairs = []
    for seed in range(seeds):
        arrivals = list(poisson(rate, seconds, mixed(lognormal(prompt, output), beta_risks()), seed=seed))
        world = World([spec], Truth(seed=1), workers=workers, seed=seed)
        pairs += [
            (served.decision.candidates[0].ttft_s, served.ttft_s)
            for served in world.run(arrivals)
            if served.arrival.at > _WARM_UP_S
        ]
    differences = [foretold - true for foretold, true in pairs]
    return Waits(
        workers,
        load,
        len(pairs),
        fmean(true for _, true in pairs),
        fmean(foretold for foretold, _ in pairs),
        fmean(differences),
        quantiles(differences, n=10)[-1],
        fmean(map(abs, differences)),
    )


def main() -> int:
    """Run all; 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--workers", default="1,2,8")
    parser.add_argument("--loads", default="0.3,0.6,0.9")
    parser.add_argument("--prompt", type=float, default=2000, help="mean tokens of a prompt")
    parser.add_argument("--output", type=float, default=30, help="mean tokens of an answer")
    parser.add_argument("--seconds", type=float, default=150, help="virtual time of a run")
    parser.add_argument("--seeds", type=int, default=4, help="runs of each kind")
    args = parser.parse_args()
    found = [
        waits(int(workers), float(load), args.prompt, args.output, args.seconds, args.seeds)
        for load in args.loads.split(",")
        for workers in args.workers.split(",")
    ]
    heads = ("load", "workers", "requests", "true s", "foretold s", "difference s", "its p90", "without sign")
    rows = [
        [
            f"{w.load:g}",
            str(w.workers),
            f"{w.requests:,}",
            f"{w.true:.3f}",
            f"{w.foretold:.3f}",
            f"{w.difference:+.3f}",
            f"{w.difference_p90:+.3f}",
            f"{w.absolute:.3f}",
        ]
        for w in found
    ]
    print(table(heads, rows))
    path = write(f"waits_{args.prompt:g}_{args.output:g}", {**vars(args), "results": [asdict(w) for w in found]})
    print(f"\n{path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

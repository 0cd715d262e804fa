"""What a job on many records takes: `python -m benchmarks.tuning.large [--records 50000]`.

Records of the planted world with 2% explored and 10% of lower precisions' answers paired, and a job on them at default
settings. Printed: CPU seconds of the job, memory before and after it, candidates, labels and what it decided.
"""

from __future__ import annotations

import argparse
import random
import resource
import time

from benchmarks.tuning.planted import LOGGED
from benchmarks.tuning.world import FACTS, World, record, traffic
from router.config.loop import TuningConfig
from router.tuning.analysis import analyse

WORLD = World(explore=0.02, shadow=0.1)


def main() -> None:
    """Make the records, run the job, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=50_000)
    count = parser.parse_args().records
    rng = random.Random(5)
    records = sorted(record(WORLD, traffic(WORLD, count, rng), LOGGED, rng), key=lambda r: r.at)
    before, began = _mib(), time.process_time()
    verdict = analyse(records, LOGGED, FACTS, TuningConfig())
    print(f"{count} records: {time.process_time() - began:.1f} s of CPU, {before:.0f} MiB before, {_mib():.0f} at most")
    print(f"{len(verdict.candidates)} candidates, {verdict.labels} labels: {verdict.reason}")


def _mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()

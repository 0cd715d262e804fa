"""Every registered model on RouteLLM's outcomes (MMLU, GSM8K, MT-bench), beside random, oracle and length.

    python benchmarks/classifier/encode_prompts.py --data DATA --encoder FOLDER --out vectors.npz
    python benchmarks/classifier/routellm_table.py --data DATA --vectors vectors.npz [--models linear,blend]

Without vectors the models that need them are left out; the head needs PyTorch (extra `head`). Prints a table and writes
`benchmarks/out/routellm_table.json`. Some twenty minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from classifier.crossval import ENCODED, PROTOCOLS, TESTS, TRAINED, run, tables
from classifier.encoders import Known

# As quoted for arXiv 2406.18665's best routers, which learnt from preferences and augmented labels, not from these outcomes.
PAPER = "RouteLLM's best: MMLU APGR 0.603, CPT50 35.4, CPT80 70.3; MT-bench APGR 0.802, CPT50 13.4, CPT80 31.3."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with routellm/ and llmrouter/")
    parser.add_argument("--models", default="", help="all when empty")
    parser.add_argument("--vectors", type=Path, default=None, help="file that encode_prompts.py wrote")
    parser.add_argument("--tests", default=",".join(TESTS), help="tested benchmarks")
    parser.add_argument("--protocols", default=",".join(PROTOCOLS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/routellm_table.json"))
    options = parser.parse_args()
    known = Known.read(options.vectors) if options.vectors is not None else None
    models = options.models.split(",") if options.models else [*TRAINED, *(ENCODED if known is not None else ())]
    started = time.perf_counter()
    rows = []
    print(
        f"{'benchmark':9s} {'model':15s} {'protocol':26s} {'APGR':>6s} {'95% interval':>16s} {'CPT50':>6s} {'CPT80':>6s}"
    )
    for row in run(
        tables(options.data),
        models,
        tests=options.tests.split(","),
        protocols=options.protocols.split(","),
        known=known,
    ):
        rows.append(row)
        print(
            f"{row['benchmark']:9s} {row['model']:15s} {row['protocol']:26s} {row['apgr']:6.3f} "
            f"{row['apgr_low']:7.3f} to {row['apgr_high']:5.3f} {row['cpt50']:6.1f} {row['cpt80']:6.1f}",
            flush=True,
        )
    print(PAPER)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"rows": rows, "seconds": round(time.perf_counter() - started, 1)}, indent=1))
    print(f"{options.out}, {time.perf_counter() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

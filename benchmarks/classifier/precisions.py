"""`bitgear calibrate` on real variants with the public prompts: how often INT8 and INT4 differ, and what risk is worth.

    bitgear up                                     # SmolLM2-135M at fp16, int8, int4 on this machine; in another terminal
    python benchmarks/classifier/precisions.py --data DATA [--group smollm2-135m] [--url fp16=http://... --url int4=...]

Prints the tables and writes `benchmarks/out/precisions/`: prompts, journal, artefact, card. A run that was ended goes on where it
was; `--offline` makes the tables of what is there. A thousand prompts take about 45 minutes of one AVX2 core.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

BITGEAR = (sys.executable, "-c", "import sys; from router.cli.main import app; sys.argv[0] = 'bitgear'; app()")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with prompts/ and routellm/")
    parser.add_argument("--group", default="smollm2-135m")
    parser.add_argument("--url", action="append", default=[], help="VARIANT=URL; default: ask the running proxy")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/precisions"))
    parser.add_argument("--offline", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    prompts = options.out / "prompts.jsonl"
    made = Path(__file__).with_name("precision_prompts.py")
    subprocess.run([sys.executable, str(made), "--data", str(options.data), "--out", str(prompts)], check=True)
    command = [*BITGEAR, "calibrate", options.group, "--prompts", str(prompts), "--out", str(options.out / "own.json")]
    # Short answers: a CPU shall do it. Answers that nothing can check are scored, and not asked for again.
    command += ["--max-tokens", "8", "--no-open-answers", "--concurrency", "32"]
    for url in options.url:
        command += ["--url", url]
    if options.offline:
        command.append("--offline")
    raise SystemExit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()

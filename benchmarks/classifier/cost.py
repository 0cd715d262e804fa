"""What `risk()` costs: p50 and p99 at 50, 1,000 and 20,000 tokens, load time, memory; one thread.

    python benchmarks/classifier/cost.py --data DATA [--artefacts FILE ...] [--encoder FOLDER] [--models default,length]

Conversations are made of real prompts (GSM8K and Chinese BELLE), as a system prompt and alternating turns. An encoder's folder
(sentence-transformers or model2vec) is timed beside them, without its head. Wall time holds what other processes on the machine
take; the thread's CPU time (`time.thread_time_ns`) does not, but for caches and the sibling core they share; `own cpu` is the
median over 50 conversations of each one's least CPU time in its 40 calls (10 at 20,000 tokens). Prints a table and writes
`benchmarks/out/classifier_cost.json`.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from classifier import load
from classifier.artefact import FOLDER
from classifier.conversation import view
from classifier.data import general_prompts
from classifier.scoring import shipped

SIZES = {50: 2000, 1000: 2000, 20_000: 500}
"""Tokens to calls timed."""
_CHARS_PER_TOKEN = {"en": 4.2, "zh": 1.4}

_MEMORY = """
import sys, time
def resident():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
before = resident()
from classifier import load
at = time.perf_counter()
kept = load(artefact=sys.argv[1])
kept.risk({"prompt": "hi"})
seconds = time.perf_counter() - at
print(resident() - before, seconds)
"""


def conversations(texts: list[str], language: str, tokens: int, count: int) -> list[dict[str, object]]:
    """Return different conversations of about this many tokens each."""
    generator = random.Random(tokens)
    wanted = int(tokens * _CHARS_PER_TOKEN[language])
    found: list[dict[str, object]] = []
    for _ in range(count):
        messages = [{"role": "system", "content": "You are a helpful assistant."}]
        left = wanted
        while left > 0:
            text = " ".join(generator.choices(texts, k=2))[: max(left, 1)]
            left -= len(text)
            messages.append({"role": ("user", "assistant")[len(messages) % 2 == 0], "content": text})
        found.append({"messages": messages})
    return found


@dataclass(frozen=True)
class Times:
    """Microseconds of one call: wall time, the thread's CPU time, and the CPU time that is the call's own."""

    p50: float
    p99: float
    cpu_p50: float
    cpu_p99: float
    own: float
    """Median over conversations of the least CPU time of each one's calls: other processes on the cores cannot add to it much."""


def timed(score: Callable[[dict[str, object]], object], requests: list[dict[str, object]], calls: int) -> Times:
    """Time `calls` calls, the conversations in turn."""
    for request in requests[: min(20, calls)]:
        score(request)
    times, cpu = [], []
    least = [float("inf")] * len(requests)
    for number in range(calls):
        place = number % len(requests)
        started, on_core = time.perf_counter_ns(), time.thread_time_ns()
        score(requests[place])
        spent = (time.thread_time_ns() - on_core) / 1000
        times.append((time.perf_counter_ns() - started) / 1000)
        cpu.append(spent)
        least[place] = min(least[place], spent)
    times.sort()
    cpu.sort()
    high = int(calls * 0.99)
    return Times(times[calls // 2], times[high], cpu[calls // 2], cpu[high], median(least))


def _row(artefact: str, kind: str, language: str, tokens: int, found: Times) -> dict[str, object]:
    """Print a line, and return it for the file."""
    print(
        f"{artefact:12s} {kind:9s} {language:4s} {tokens:6d} {found.p50:8.1f} {found.p99:8.1f} "
        f"{found.cpu_p50:8.1f} {found.cpu_p99:8.1f} {found.own:8.1f}",
        flush=True,
    )
    figures = {f"{name}_us": round(value, 1) for name, value in asdict(found).items()}
    return {"artefact": artefact, "kind": kind, "language": language, "tokens": tokens, **figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with prompts/")
    parser.add_argument("--artefacts", type=Path, nargs="*", default=[], help="files to time beside the shipped ones")
    parser.add_argument("--models", default="", help="shipped ones to time, all when empty")
    parser.add_argument("--encoder", type=Path, default=None, help="folder of a sentence encoder to time as well")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/classifier_cost.json"))
    options = parser.parse_args()
    prompts = general_prompts(options.data)
    texts = {
        language: [str(request["messages"][0]["content"]) for request in prompts[source]]  # type: ignore[index]
        for language, source in (("en", "gsm8k_train"), ("zh", "belle_zh"))
    }
    names = [name for name in options.models.split(",") if name] or shipped()
    files = [FOLDER / f"{name}.json" for name in names]
    rows: list[dict[str, object]] = []
    print(
        f"{'artefact':12s} {'kind':9s} {'lang':4s} {'tokens':>6s} {'p50 us':>8s} {'p99 us':>8s} "
        f"{'cpu p50':>8s} {'cpu p99':>8s} {'own cpu':>8s}"
    )
    for file in [*files, *options.artefacts]:
        classifier = load(artefact=file)
        done = subprocess.run([sys.executable, "-c", _MEMORY, str(file)], capture_output=True, text=True, check=True)
        memory, seconds = done.stdout.split()
        for language in ("en", "zh"):
            for tokens, calls in SIZES.items():
                found = timed(classifier.risk, conversations(texts[language], language, tokens, 50), calls)
                rows.append(_row(file.stem, classifier.artefact.kind, language, tokens, found))
        rows.append({"artefact": file.stem, "load_ms": round(float(seconds) * 1000, 1), "memory_kib": int(memory)})
        print(
            f"{file.stem:12s} load and first call {float(seconds) * 1000:.1f} ms, memory with imports {int(memory) / 1024:.1f} MiB"
        )
    if options.encoder is not None:
        from classifier.encoders import open_encoder

        started = time.perf_counter()
        encoder = open_encoder(options.encoder)
        seconds = time.perf_counter() - started
        for language in ("en", "zh"):
            for tokens in SIZES:
                requests = conversations(texts[language], language, tokens, 10)
                found = timed(lambda request: encoder.encode(view(request).text), requests, 30)
                rows.append(_row("encoder", "embedding", language, tokens, found))
        rows.append({"artefact": "encoder", "load_ms": round(seconds * 1000, 1)})
        print(f"encoder      loads in {seconds * 1000:.0f} ms")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"python": sys.version.split()[0], "rows": rows}, indent=1))


if __name__ == "__main__":
    main()

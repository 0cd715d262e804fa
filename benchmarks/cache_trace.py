"""What the cache saves on a recorded workload: arrivals and lengths from Azure's traces, repeats made up.

    python benchmarks/cache_trace.py --trace AzureLLMInferenceTrace_conv.csv.gz [--requests 5000] [--speedup 20]

The traces (Azure/AzurePublicDataset, CC-BY) tell when each request came and how many tokens went in and out, not what it
said: so which request repeats another is drawn here, by Zipf's law with the given exponents over the trace's own
requests. The figures say what the cache does with such repeats, not how often your users repeat themselves. Every
request is at temperature 0; requests run as they came, `--speedup` times as fast, over at most 64 connections. `passed_by`
counts those that came while the cache was away, as it is when Valkey does not answer within `cache.timeout_ms` on a
machine that is too busy. It exits with 1 on any error.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gzip
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from cache import Caller, percentile
from harness.native import build, start_stub
from harness.peers import MODEL, Peer, Setting, bitgear
from harness.report import OUT, table, write

CONNECTIONS = 64
_CHARACTERS = 4
"""A token's, about."""


class Row(NamedTuple):
    """One request of the trace."""

    at_s: float
    prompt_tokens: int
    output_tokens: int


def read(path: Path, count: int) -> list[Row]:
    """The trace's first rows; times are seconds since the first."""
    rows: list[Row] = []
    with gzip.open(path, "rt", newline="") as file:
        for line in csv.DictReader(file):
            # Seven digits after the second are one too many for Python.
            at = datetime.fromisoformat(line["TIMESTAMP"][:26]).timestamp()
            rows.append(Row(at, int(line["ContextTokens"]), int(line["GeneratedTokens"])))
            if len(rows) == count:
                break
    return [row._replace(at_s=row.at_s - rows[0].at_s) for row in rows]


def body_of(number: int, row: Row) -> bytes:
    """A request of this row's lengths; equal ones are equal, others differ."""
    text = (f"Request {number}. " + "word " * row.prompt_tokens)[: row.prompt_tokens * _CHARACTERS]
    messages = [{"role": "user", "content": f"{number}: {text}"}]
    return json.dumps(
        {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": max(1, row.output_tokens)}
    ).encode()


def drawn(rows: list[Row], exponent: float, seed: int) -> list[int]:
    """For each arrival the number of the request that comes; exponent 0: each its own, nothing repeats."""
    if not exponent:
        return list(range(len(rows)))
    rng = random.Random(seed)
    order = list(range(len(rows)))
    rng.shuffle(order)
    return rng.choices(order, [1 / rank**exponent for rank in range(1, len(rows) + 1)], k=len(rows))


def play(peer: Peer, rows: list[Row], numbers: list[int], speedup: float) -> dict[str, float]:
    """Send all, each at its time; what came of it."""
    callers: SimpleQueue[Caller] = SimpleQueue()
    for _ in range(CONNECTIONS):
        callers.put(Caller(peer.port))

    def ask(number: int) -> tuple[float, str]:
        caller = callers.get()
        took, told, _ = caller.ask(body_of(number, rows[number]))
        callers.put(caller)
        return took, told

    began = time.monotonic()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        asked = []
        for row, number in zip(rows, numbers, strict=True):
            time.sleep(max(0.0, began + row.at_s / speedup - time.monotonic()))
            asked.append(pool.submit(ask, number))
        answers = [one.result() for one in asked]
    for _ in range(CONNECTIONS):
        callers.get().close()
    hits = [number for number, (_, told) in zip(numbers, answers, strict=True) if told == "hit"]
    repeats = len(numbers) - len(set(numbers))
    return {
        "requests": len(numbers),
        "repeats": repeats,
        "hits": len(hits),
        "hit_rate": len(hits) / len(numbers),
        "share_of_output_tokens_saved": sum(rows[n].output_tokens for n in hits)
        / sum(rows[n].output_tokens for n in numbers),
        "share_of_prompt_tokens_saved": sum(rows[n].prompt_tokens for n in hits)
        / sum(rows[n].prompt_tokens for n in numbers),
        "p50_ms": percentile([t for t, _ in answers], 0.5) * 1000,
        "p99_ms": percentile([t for t, _ in answers], 0.99) * 1000,
        "passed_by": sum(told == "bypass" for _, told in answers),
        "errors": sum(told not in ("hit", "miss", "bypass") for _, told in answers),
    }


@contextlib.contextmanager
def proxy() -> Iterator[Peer]:
    """A Bitgear with its cache in front of the native stub."""
    folder = OUT / "logs" / "cache-trace"
    with contextlib.ExitStack() as stack:
        stub = start_stub(folder, replicas=3)
        stack.callback(stub.process.stop)
        home = stack.enter_context(tempfile.TemporaryDirectory())
        peer = replace(bitgear(Setting(stub, folder, None, extra_config={"local": {"home": home}})), name="on")
        assert peer.process is not None
        stack.callback(peer.process.stop)
        time.sleep(1.0)
        yield peer


def main() -> int:
    """Measure, print a table, write JSON; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, required=True, help="one of Azure's traces, .csv.gz")
    parser.add_argument("--requests", type=int, default=5000, help="rows taken from its beginning")
    parser.add_argument("--speedup", type=float, default=20.0, help="times as fast as recorded")
    parser.add_argument("--zipf", type=float, nargs="*", default=[0.0, 0.6, 0.8, 1.0], help="exponents of the repeats")
    options = parser.parse_args()
    build()
    rows = read(options.trace, options.requests)
    found: dict[str, dict[str, float]] = {}
    for exponent in options.zipf:
        with proxy() as peer:
            found[f"{exponent:g}"] = play(peer, rows, drawn(rows, exponent, 0), options.speedup)
    head = ["Zipf", *next(iter(found.values()))]
    print(table(head, [[name, *(f"{v:.4g}" for v in values.values())] for name, values in found.items()]))
    print(write("cache-trace", {"trace": options.trace.name, "speedup": options.speedup, "found": found}))
    return 1 if any(values["errors"] for values in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

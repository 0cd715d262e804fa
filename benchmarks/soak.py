"""Many thousands of mixed requests through Bitgear: is memory flat, does anything leak, is every error one of the stub's?

    python benchmarks/soak.py [--requests 100000] [--minutes 10] [--fail-every 50] [--max-slope 0.5]

Each cycle loads plain answers, whole streams, streams and plain requests that the client leaves, plain ones from the
cache or waiting for one call, and long bodies, while every Nth answer of the stub fails (a 500, or an error event
inside a stream). Memory is read after each cycle; the slope is a straight line through the second half of the run, MiB per 10,000 requests, by which time pools and caches are full
(the stream of events is kept short here, so that the private Valkey server's memory is as flat as the rest).
It exits with 1 where the slope is above the limit, more answers failed than the stub made fail, or streams are still
running at the stub after the last client is gone.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.native import Stub, build, load, start_stub
from harness.peers import PEERS, Peer, Setting
from harness.processes import cpu_s, pss_by_process
from harness.report import OUT, table, write


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of traffic in a cycle: how many requests, and the load client's options."""

    name: str
    requests: int
    options: tuple[object, ...]


CACHED = ("-H", "cache-control: max-age=1")
CYCLE = (
    Part("plain", 2000, ("-c", 32)),
    Part("streams", 1200, ("-c", 64, "-s", 10)),
    Part("streams with usage", 400, ("-c", 32, "-s", 10, "-U")),
    Part("streams left", 800, ("-c", 64, "-s", 20, "-x", 2)),
    Part("plain left", 400, ("-c", 16, "-x", 2)),
    # A second later the same question is asked upstream again, by one of those who ask it then.
    Part("plain, cached", 800, ("-c", 32, *CACHED)),
    Part("plain left, cached", 400, ("-c", 16, "-x", 2, "-b", 300, *CACHED)),
    Part("long bodies", 200, ("-c", 8, "-b", 200_000)),
)
PER_CYCLE = sum(part.requests for part in CYCLE)


def cycle(peer: Peer, cpu: int | None) -> dict[str, dict[str, Any]]:
    """Every part once."""
    return {p.name: load(peer.port, "-n", p.requests, "-e", *p.options, key=peer.key, cpu=cpu) for p in CYCLE}


def slope(requests: list[int], memory: list[float]) -> float:
    """MiB per 10,000 requests over the second half of the samples; 0 with fewer than four samples there."""
    half = len(requests) // 2
    xs, ys = requests[half:], memory[half:]
    return statistics.linear_regression(xs, ys).slope * 10_000 if len(xs) > 3 else 0.0


def own(by_process: Mapping[str, float]) -> float:
    """MiB of all processes but the private Valkey's: what it keeps (answers, events, the requests that feedback may name) is
    data, and bounded by its own `maxmemory`."""
    return sum(size for name, size in by_process.items() if "valkey" not in name)


def settled(stub: Stub, seconds: float = 10) -> int:
    """Streams that still run at the stub once the clients are gone: 0 as soon as it is, else after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and stub.stats()["running"]:
        time.sleep(0.05)
    return stub.stats()["running"]


def main() -> int:
    """Runs cycles until the requests or the minutes are over; 0 when nothing leaks and no answer failed by itself."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=10, help="longest run")
    parser.add_argument("--fail-every", type=int, default=50, help="every Nth answer of the stub fails; 0: none")
    parser.add_argument("--max-slope", type=float, default=0.5, help="MiB per 10,000 requests")
    parser.add_argument("--peer", default="bitgear", choices=sorted(n for n in PEERS if n != "direct"))
    args = parser.parse_args()
    cores = (0, 1) if (os.cpu_count() or 1) > 1 else (None, None)
    build()
    requests, memory, errors, left, samples = [0], [], 0, 0, []
    with contextlib.ExitStack() as stack:
        stub = start_stub(OUT / "logs", replicas=3, cpu=cores[0])
        stack.callback(stub.process.stop)
        peer = PEERS[args.peer](Setting(stub, OUT / "logs", cores[1], extra_config={"events": {"max_length": 500}}))
        assert peer.process is not None
        stack.callback(peer.process.stop)
        first = pss_by_process(peer.process.pid)
        memory.append(own(first))
        stub.set("delay_us", 1000)
        stub.set("fail_every", args.fail_every)
        began = time.monotonic()
        while requests[-1] < args.requests and time.monotonic() - began < args.minutes * 60:
            runs = cycle(peer, cores[0])
            requests.append(requests[-1] + sum(r["requests"] for r in runs.values()))
            errors += sum(r["errors"] for r in runs.values())
            left += sum(r["left"] for r in runs.values())
            memory.append(own(pss_by_process(peer.process.pid)))
            samples.append(runs)
            print(
                f"{requests[-1]:>8} requests, {errors} errors, {left} left, {memory[-1]:.1f} MiB",
                file=sys.stderr,
                flush=True,
            )
        last = pss_by_process(peer.process.pid)
        seconds, running, used, stats = time.monotonic() - began, settled(stub), cpu_s(peer.process.pid), stub.stats()
    leak = slope(requests, memory)
    heads = [
        "requests",
        "seconds",
        "left",
        "errors",
        "failed by the stub",
        "still running",
        "CPU s",
        "MiB first/last",
        "MiB per 10,000",
    ]
    row = [requests[-1], f"{seconds:.0f}", left, errors, stats["failed"], running, f"{used:.0f}"]
    print(table(heads, [[str(c) for c in [*row, f"{memory[0]:.1f}/{memory[-1]:.1f}", f"{leak:.3f}"]]]))
    for name, size in last.items():
        print(f"{name}: {first.get(name, 0):.1f} -> {size:.1f} MiB")
    content = {
        "requests": requests,
        "memory_mib": memory,
        "errors": errors,
        "left": left,
        "stub": stats,
        "slope": leak,
        "processes": last,
    }
    print(f"JSON: {os.path.relpath(write('soak', {**content, 'samples': samples}))}")
    return 1 if leak > args.max_slope or errors > stats["failed"] or running else 0


if __name__ == "__main__":
    sys.exit(main())

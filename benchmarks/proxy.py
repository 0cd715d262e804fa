"""What Bitgear costs as a proxy: requests/s, CPU per request and per chunk, added latency, memory, beside baselines.

    python benchmarks/proxy.py [--quick] [--rounds 3] [--peers direct,bitgear,raw-asgi,fastapi-httpx,vllm-router,litellm]

All peers run at once in front of one native stub and are loaded in turn, round after round, so that a busy moment of
the machine falls on all. Stub and load client share one core, the peers the other. CPU is user and system time of the
peer's process tree: the figure that a busy machine disturbs least; trust ratios within one run more than absolute
figures. It exits with 1 where a whole answer was missing anywhere.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from harness.native import Stub, build, load, start_stub
from harness.peers import DEFAULT_PEERS, PEERS, Peer, Setting
from harness.processes import StartError, cpu_s, pss_mib
from harness.report import OUT, Figures, Round, medians, table, write

PACE_US = 20_000
"""Pace of the paced streams: 50 chunks/s each."""
KEEPS_UP = 11_000
"""Chunks/s below which 200 paced streams would measure a queue, not a latency."""


def measured(peer: Peer, *args: object, cpu: int | None) -> tuple[dict[str, Any], float]:
    """Figures of one load run, and the peer's CPU seconds in it."""
    before = cpu_s(peer.pid) if peer.pid else 0.0
    figures = load(peer.port, *args, key=peer.key, cpu=cpu)
    return figures, (cpu_s(peer.pid) - before) if peer.pid else 0.0


def plain(peer: Peer, *args: object, cpu: int | None) -> Figures:
    """Plain answers: rate, latency (microseconds), CPU microseconds per request."""
    run, used = measured(peer, *args, cpu=cpu)
    lat: dict[str, float] = run.get("lat_us") or {"p50": float("nan"), "p99": float("nan")}
    count, rate, errors = (float(run[k]) for k in ("requests", "rps", "errors"))
    return {"rps": rate, "p50": lat["p50"], "p99": lat["p99"], "errors": errors, "cpu_us": used * 1e6 / max(count, 1)}


def streams(peer: Peer, *args: object, cpu: int | None) -> Figures:
    """Streams: chunks/s, time of the first byte and one-way time of each chunk (microseconds), CPU per chunk."""
    run, used = measured(peer, *args, cpu=cpu)
    none = {"p50": float("nan"), "p99": float("nan")}
    first: dict[str, float] = run.get("ttfb_us") or none
    way: dict[str, float] = run.get("chunk_oneway_us") or none
    count, rate, errors = (float(run[k]) for k in ("chunks", "chunks_per_s", "errors"))
    return {
        "cps": rate,
        "p50": way["p50"],
        "p99": way["p99"],
        "ttfb50": first["p50"],
        "ttfb99": first["p99"],
        "errors": errors,
        "cpu_us": used * 1e6 / max(count, 1),
    }


def one_round(peer: Peer, stub: Stub, seconds: float, cpu: int | None) -> Round:
    """Every measurement once, on one peer."""
    stub.set("delay_us", 0)
    load(peer.port, "-c", 8, "-n", 200, key=peer.key, cpu=cpu)
    found: Round = {f"plain{c}": plain(peer, "-c", c, "-t", seconds, cpu=cpu) for c in (1, 32, 128)}
    found["open100"] = plain(peer, "-c", 64, "-t", 2 * seconds, "-r", 100, cpu=cpu)
    found["lone"] = streams(peer, "-c", 1, "-n", 20, "-s", 10, cpu=cpu)
    found["full"] = streams(peer, "-c", 32, "-t", seconds, "-s", 200, cpu=cpu)
    stub.set("delay_us", PACE_US)
    for count in (40, 200):
        if count == 40 or found["full"]["cps"] > KEEPS_UP:
            found[f"paced{count}"] = streams(peer, "-c", count, "-n", count, "-s", 100, "-g", 20, cpu=cpu)
    stub.set("delay_us", 0)
    if peer.pid:
        found["memory"] = {"pss_mib": pss_mib(peer.pid)}
    return found


def shown(results: dict[str, Round]) -> str:
    """The table of medians; 'added' is against the direct run."""
    heads = [
        "peer",
        "requests/s at 1 / 32 / 128",
        "CPU µs/request (32)",
        "p50/p99 ms (32)",
        "added p50/p99 ms at 100/s",
    ]
    heads += [
        "added first token ms, lone stream",
        "CPU µs/chunk 40×50/s",
        "200×50/s",
        "full rate",
        "added chunk p50/p99 ms 40×50/s",
    ]
    heads += ["chunks/s", "memory MiB", "errors"]
    base = results.get("direct", {})

    def added(found: Round, name: str, figure: str) -> str:
        if name not in base or name not in found:
            return "–"
        return f"{(found[name][figure] - base[name][figure]) / 1000:.2f}"

    rows = []
    for name, found in results.items():
        rates = " / ".join(f"{found[f'plain{c}']['rps']:.0f}" for c in (1, 32, 128))
        busy = found["plain32"]
        cells = [name, rates, f"{busy['cpu_us']:.0f}", f"{busy['p50'] / 1000:.2f}/{busy['p99'] / 1000:.2f}"]
        cells += [f"{added(found, 'open100', 'p50')}/{added(found, 'open100', 'p99')}", added(found, "lone", "ttfb50")]
        cells += [f"{found[k]['cpu_us']:.1f}" if k in found else "–" for k in ("paced40", "paced200", "full")]
        cells += [f"{added(found, 'paced40', 'p50')}/{added(found, 'paced40', 'p99')}", f"{found['full']['cps']:.0f}"]
        cells += [f"{found['memory']['pss_mib']:.0f}" if "memory" in found else "–"]
        cells += [f"{sum(f.get('errors', 0) for f in found.values()):.0f}"]
        rows.append(cells)
    return table(heads, rows)


def ratios(results: dict[str, Round]) -> str:
    """Bitgear's CPU beside each baseline's, as factors."""
    own = results.get("bitgear")
    lines = []
    for name, found in results.items():
        if own is None or name in ("bitgear", "direct"):
            continue
        pairs = {"request": "plain32", "chunk of 40 paced streams": "paced40", "chunk at full rate": "full"}
        parts = [
            f"{own[k]['cpu_us'] / found[k]['cpu_us']:.2f} per {label}"
            for label, k in pairs.items()
            if found[k]["cpu_us"]
        ]
        lines.append(f"Bitgear's CPU / {name}'s: " + ", ".join(parts))
    return "\n".join(lines)


def start(names: Sequence[str], setting: Setting, stack: contextlib.ExitStack) -> list[Peer]:
    """Starts the peers; those that cannot start are left out, with the reason."""
    peers = []
    for name in names:
        try:
            peer = PEERS[name](setting)
        except StartError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        if peer.process:
            stack.callback(peer.process.stop)
        peers.append(peer)
    return peers


def main() -> int:
    """Runs the rounds; 0 when every answer was whole."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, help="interleaved rounds (3; with --quick 1)")
    parser.add_argument("--peers", default=",".join(DEFAULT_PEERS), help=f"comma-separated, of: {', '.join(PEERS)}")
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--seconds", type=float, help="length of each closed-loop run (2; with --quick 1)")
    args = parser.parse_args()
    names = args.peers.split(",")
    unknown = [n for n in names if n not in PEERS]
    if unknown:
        parser.error(f"unknown peer {unknown[0]!r}; known: {', '.join(PEERS)}")
    seconds = args.seconds or (1 if args.quick else 2)
    cores = (0, 1) if (os.cpu_count() or 1) > 1 else (None, None)
    build()
    samples: dict[str, list[Round]] = {}
    with contextlib.ExitStack() as stack:
        stub = start_stub(OUT / "logs", replicas=3, cpu=cores[0])
        stack.callback(stub.process.stop)
        peers = start(names, Setting(stub, OUT / "logs", cores[1]), stack)
        fresh = {p.name: pss_mib(p.pid) for p in peers if p.pid}
        for number in range(args.rounds or (1 if args.quick else 3)):
            for peer in peers:
                began = time.monotonic()
                samples.setdefault(peer.name, []).append(one_round(peer, stub, seconds, cores[0]))
                print(f"round {number + 1}, {peer.name}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    results = {name: medians(rounds) for name, rounds in samples.items()}
    for name, value in fresh.items():
        results[name]["fresh"] = {"pss_mib": value}
    print(shown(results))
    print(ratios(results))
    print(f"JSON: {os.path.relpath(write('proxy', {'medians': results, 'samples': samples}))}")
    return 1 if any(f.get("errors") for found in results.values() for f in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

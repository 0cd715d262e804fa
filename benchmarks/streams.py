"""Many concurrent paced streams through Bitgear: errors, latency added to each chunk, CPU, memory.

    python benchmarks/streams.py [--counts 1000,2000] [--pace 5] [--chunks 50] [--peers bitgear]

`--pace` is chunks/s of each stream. The stub's own send time travels in each chunk, so the latency is one-way and
exact; 'added' is against the same streams without a proxy. It exits with 1 where a stream was not whole.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import sys
import threading
from typing import Any

from harness.native import Stub, build, load, start_stub
from harness.peers import PEERS, Peer, Setting
from harness.processes import StartError, cpu_s, pss_mib
from harness.report import OUT, table, write

FILES_PER_STREAM = 3
"""Descriptors in one process for each stream: one to the client, one to the replica, one to spare."""


def raise_file_limit(wanted: int) -> None:
    """Lifts the soft limit on open files; the hard limit is what it is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, hard)), hard))


class Watch:
    """Looks, while a load runs, at the peer's memory and at the streams that the stub runs."""

    def __init__(self, peer: Peer, stub: Stub) -> None:
        self.peak_pss = self.peak_running = 0.0
        self._peer, self._stub = peer, stub
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            self.peak_running = max(self.peak_running, self._stub.stats()["running"])
            if self._peer.pid:
                self.peak_pss = max(self.peak_pss, pss_mib(self._peer.pid))


def run(peer: Peer, stub: Stub, count: int, chunks: int, pace: float, cpu: int | None) -> dict[str, Any]:
    """One run of `count` streams; latencies in milliseconds, memory in MiB, CPU in microseconds per chunk."""
    stub.set("delay_us", round(1e6 / pace))
    before = pss_mib(peer.pid) if peer.pid else 0.0
    used = cpu_s(peer.pid) if peer.pid else 0.0
    seconds = 2 * chunks / pace + 60
    with Watch(peer, stub) as watch:
        found = load(
            peer.port,
            "-c",
            count,
            "-n",
            count,
            "-s",
            chunks,
            "-g",
            1000 / pace,
            key=peer.key,
            cpu=cpu,
            timeout_s=seconds,
        )
    used = (cpu_s(peer.pid) - used) if peer.pid else 0.0
    way, first = found["chunk_oneway_us"], found["ttfb_us"]
    return {
        "peer": peer.name,
        "streams": count,
        "errors": found["errors"],
        "unfinished": found["unfinished"],
        "at_once": watch.peak_running,
        "chunks_per_s": found["chunks_per_s"],
        "p50_ms": way["p50"] / 1000,
        "p99_ms": way["p99"] / 1000,
        "ttfb50_ms": first["p50"] / 1000,
        "ttfb99_ms": first["p99"] / 1000,
        "cpu_us": used * 1e6 / max(found["chunks"], 1),
        "before_mib": before,
        "peak_mib": watch.peak_pss,
        "after_mib": pss_mib(peer.pid) if peer.pid else 0.0,
    }


def shown(rows: list[dict[str, Any]]) -> str:
    """The table; 'added' is the difference to the direct run with as many streams."""
    direct = {r["streams"]: r for r in rows if r["peer"] == "direct"}
    heads = ["peer", "streams", "at once", "errors", "chunks/s", "chunk p50/p99 ms", "added", "first byte p50/p99 ms"]
    heads += ["CPU µs/chunk", "MiB before/peak/after", "KiB/stream"]
    cells = []
    for r in rows:
        d = direct[r["streams"]]
        each = (r["peak_mib"] - r["before_mib"]) * 1024 / r["streams"]
        cells.append(
            [
                r["peer"],
                str(r["streams"]),
                f"{r['at_once']:.0f}",
                str(r["errors"] + r["unfinished"]),
                f"{r['chunks_per_s']:.0f}",
                f"{r['p50_ms']:.2f}/{r['p99_ms']:.2f}",
                f"{r['p50_ms'] - d['p50_ms']:.2f}/{r['p99_ms'] - d['p99_ms']:.2f}",
                f"{r['ttfb50_ms']:.1f}/{r['ttfb99_ms']:.1f}",
                f"{r['cpu_us']:.0f}",
                f"{r['before_mib']:.0f}/{r['peak_mib']:.0f}/{r['after_mib']:.0f}",
                f"{each:.0f}" if r["peak_mib"] else "–",
            ]
        )
    return table(heads, cells)


def main() -> int:
    """Runs each count on each peer; 0 when every stream was whole."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--counts", default="1000,2000", help="numbers of concurrent streams")
    parser.add_argument("--pace", type=float, default=5, help="chunks/s of each stream")
    parser.add_argument("--chunks", type=int, default=50, help="chunks of each stream")
    parser.add_argument("--peers", default="bitgear", help=f"comma-separated, of: {', '.join(PEERS)}")
    args = parser.parse_args()
    counts = [int(c) for c in args.counts.split(",")]
    names = ["direct", *(n for n in args.peers.split(",") if n != "direct")]
    unknown = [n for n in names if n not in PEERS]
    if unknown:
        parser.error(f"unknown peer {unknown[0]!r}; known: {', '.join(PEERS)}")
    raise_file_limit(FILES_PER_STREAM * max(counts) + 500)
    cores = (0, 1) if (os.cpu_count() or 1) > 1 else (None, None)
    build()
    rows: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        stub = start_stub(OUT / "logs", replicas=3, cpu=cores[0])
        stack.callback(stub.process.stop)
        for name in names:
            try:
                peer = PEERS[name](Setting(stub, OUT / "logs", cores[1]))
            except StartError as error:
                print(f"left out: {error}", file=sys.stderr)
                continue
            if peer.process:
                stack.callback(peer.process.stop)
            rows += [run(peer, stub, count, args.chunks, args.pace, cores[0]) for count in counts]
    print(shown(rows))
    print(f"JSON: {os.path.relpath(write('streams', {'pace': args.pace, 'chunks': args.chunks, 'rows': rows}))}")
    return 1 if any(r["errors"] or r["unfinished"] for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

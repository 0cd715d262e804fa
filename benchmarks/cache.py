"""What the cache costs and saves: latency of a miss and of a hit beside no cache, a replayed workload, a million entries.

    python benchmarks/cache.py [--quick] [--entries 1000000] [--workload FILE.jsonl]

Two Bitgears run at once in front of one native stub, one without a cache, both with a private Valkey server: they are
asked in turn, round after round, by one client on one connection. Stub and client share one core, the proxies the
other; CPU is user and system time of a proxy's process tree. A workload is one request body a line; without one it is
the questions of MT-bench (first turns), repeated as by Zipf's law with exponent 1. It exits with 1 where an answer was
not what it should be (a hit where a miss was due, an error).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import logging
import os
import random
import re
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.native import build, start_stub
from harness.peers import MODEL, Peer, Setting, bitgear
from harness.processes import cpu_s
from harness.report import OUT, table, write

from router.cache.entry import Entry, Format
from router.cache.key import Place, request_key
from router.cache.store import Store
from router.store.valkey import PrivateValkey

QUESTIONS = Path(__file__).resolve().parent.parent / "tests/data/mt_bench.jsonl"
_TOLD = re.compile(rb"x-bitgear-cache: (\w+)")
_LENGTH = re.compile(rb"content-length: (\d+)")
_TOKENS = re.compile(rb'"completion_tokens":\s*(\d+)')


class Caller:
    """One connection; a request at a time, whole answers."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, body: bytes) -> tuple[float, str, int]:
        """Seconds it took, what the cache did, tokens of the answer."""
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        began = time.perf_counter()
        self._socket.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._received()
        top, _, rest = data.partition(b"\r\n\r\n")
        length = _LENGTH.search(top.lower())
        assert length is not None, top
        while len(rest) < int(length[1]):
            rest += self._received()
        took = time.perf_counter() - began
        if not top.startswith(b"HTTP/1.1 200"):
            return took, "error", 0
        told, tokens = _TOLD.search(top), _TOKENS.search(rest)
        return took, told[1].decode() if told else "none", int(tokens[1]) if tokens else 0

    def _received(self) -> bytes:
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the proxy closed the connection")
        return data

    def close(self) -> None:
        """Leave."""
        self._socket.close()


def body_of(text: str, temperature: float = 0) -> bytes:
    """A request of some hundred tokens that asks for as many."""
    system = "You are a helpful assistant. " * 10
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    return json.dumps({"model": MODEL, "messages": messages, "temperature": temperature, "max_tokens": 100}).encode()


def percentile(values: Sequence[float], share: float) -> float:
    """Of unsorted values."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def latency(off: Peer, on: Peer, rounds: int, count: int) -> tuple[dict[str, dict[str, float]], int]:
    """p50 and p99 (µs) and CPU per request (µs) of each kind, medians of rounds; and how many answers were wrong."""
    numbers = itertools.count()
    salt = os.urandom(4).hex()
    kinds: dict[str, tuple[Peer, str]] = {
        "no cache": (off, "bypass"),
        "not cacheable": (on, "bypass"),
        "miss": (on, "miss"),
        "hit": (on, "hit"),
    }
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    wrong = 0
    callers = {peer.name: Caller(peer.port) for peer in (off, on)}
    known = body_of(f"known {salt}")
    callers[on.name].ask(known)
    time.sleep(0.2)
    for _ in range(rounds):
        for kind, (peer, due) in kinds.items():
            caller, times = callers[peer.name], []
            assert peer.pid is not None
            before = cpu_s(peer.pid)
            for _ in range(count):
                body = (
                    known
                    if kind == "hit"
                    else body_of(f"{next(numbers)} {salt}", 0.7 if kind == "not cacheable" else 0)
                )
                took, told, _ = caller.ask(body)
                wrong += told != due
                times.append(took * 1e6)
            used = (cpu_s(peer.pid) - before) * 1e6 / count
            found[kind].append({"p50": percentile(times, 0.5), "p99": percentile(times, 0.99), "cpu": used})
    for caller in callers.values():
        caller.close()
    return {k: {f: statistics.median(r[f] for r in rows) for f in rows[0]} for k, rows in found.items()}, wrong


def workload(file: Path | None, count: int) -> tuple[str, Iterator[bytes]]:
    """What it is, in words, and the bodies."""
    if file is not None:
        return file.name, (line.strip() for line in file.read_bytes().splitlines()[:count] if line.strip())
    with QUESTIONS.open() as lines:
        turns = [json.loads(line)["turns"][0] for line in lines]
    rng = random.Random(0)
    rng.shuffle(turns)
    weights = [1 / rank for rank in range(1, len(turns) + 1)]
    drawn = rng.choices(turns, weights, k=count)
    # Half of all requests are not repeatable by their own words: they pass by.
    return "MT-bench, Zipf 1, half at temperature 0", (body_of(t, i % 2 * 0.7) for i, t in enumerate(drawn))


def replay(peer: Peer, bodies: Iterator[bytes]) -> dict[str, float]:
    """Hit rate of what may be kept and of all, and the share of generated tokens that was saved."""
    caller, told, tokens = Caller(peer.port), [], []
    for body in bodies:
        _, what, count = caller.ask(body)
        told.append(what)
        tokens.append(count)
    caller.close()
    hits = told.count("hit")
    saved = sum(t for t, what in zip(tokens, told, strict=True) if what == "hit")
    return {
        "requests": len(told),
        "hits": hits,
        "hit_rate_of_cacheable": hits / max(1, hits + told.count("miss")),
        "hit_rate_of_all": hits / max(1, len(told)),
        "tokens_saved": saved,
        "share_of_tokens_saved": saved / max(1, sum(tokens)),
        "errors": told.count("error"),
    }


async def many(entries: int, lookups: int) -> dict[str, float]:
    """Memory of this many entries in Valkey, and the time of one look-up among them, alone and 32 at once."""
    words = QUESTIONS.read_text().split()
    rng = random.Random(1)
    # 120 words of an answer each; no two entries are the same, their ids differ.
    texts = [" ".join(rng.choices(words, k=120)) for _ in range(1000)]
    form = Format(compress_above=1024, max_bytes=1 << 20)
    place = Place(MODEL, None, "anonymous", "r")
    with tempfile.TemporaryDirectory() as folder:
        server = PrivateValkey(Path(folder), max_memory_mib=16_384)
        server.start()
        store = Store(server.url, password=None, timeout_s=30, log=logging.getLogger("benchmark"))
        store.start()
        try:
            while not store.up:
                await asyncio.sleep(0.01)
            keys, size, began = [], 0, time.perf_counter()
            for n in range(entries):
                body: dict[str, Any] = {"messages": [{"role": "user", "content": str(n)}], "temperature": 0}
                key = request_key(b"/v1/chat/completions", b"", body, place)
                assert key is not None
                text = texts[n % len(texts)]
                answer = json.dumps({"id": f"chatcmpl-{n:016x}", "choices": [{"message": {"content": text}}]}).encode()
                size += len(answer)
                data = form.encode(Entry("chat.completions", "fp16", MODEL, 100, 150, 0, answer), key.entry)
                assert data is not None
                store.put(key, data, 86_400_000, None)
                if n % 200 == 0:
                    # So that what was written is taken before more is.
                    await store.look(key, None, 0)
                if n % max(1, entries // 10_000) == 0:
                    keys.append(key)
            await store.look(keys[0], None, 0)
            filled = time.perf_counter() - began
            memory = await _memory(server)
            alone = []
            for key in rng.choices(keys, k=lookups):
                began = time.perf_counter()
                assert isinstance(await store.look(key, None, 0), bytes)
                alone.append((time.perf_counter() - began) * 1e6)
            began, together = time.process_time(), 0
            for _ in range(lookups // 32):
                together += len(await asyncio.gather(*(store.look(k, None, 0) for k in rng.choices(keys, k=32))))
            cpu_us = (time.process_time() - began) * 1e6 / max(1, together)
            assert store.stats.writes_failed == 0
        finally:
            await store.stop()
            server.stop()
    return {
        "entries": entries,
        "mean_answer_bytes": size / entries,
        "memory_mib": memory / 2**20,
        "bytes_per_entry": memory / entries,
        "filled_s": filled,
        "lookup_p50_us": percentile(alone, 0.5),
        "lookup_p99_us": percentile(alone, 0.99),
        "client_cpu_us_32_at_once": cpu_us,
    }


async def _memory(server: PrivateValkey) -> int:
    from redis.asyncio import Redis

    async with Redis.from_url(server.url) as client:
        return int((await client.info("memory"))["used_memory"])


def main() -> int:
    """Run all; the exit code comes back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and requests, 100,000 entries")
    parser.add_argument("--entries", type=int, help="entries kept at once")
    parser.add_argument("--rounds", type=int, help="rounds of the latencies")
    parser.add_argument("--count", type=int, help="requests of each kind and round")
    parser.add_argument("--workload", type=Path, help="request bodies to replay, one a line")
    parser.add_argument("--requests", type=int, default=2000, help="requests of the workload")
    options = parser.parse_args()
    rounds, count = (3, 300) if options.quick else (7, 1000)
    rounds, count = options.rounds or rounds, options.count or count
    entries = options.entries or (100_000 if options.quick else 1_000_000)
    build()
    cores = sorted(os.sched_getaffinity(0))
    shared, own = (cores[0], cores[1]) if len(cores) > 1 else (None, None)
    if shared is not None:
        os.sched_setaffinity(0, {shared})
    folder = OUT / "logs" / "cache"
    with contextlib.ExitStack() as stack:
        stub = start_stub(folder, replicas=3, cpu=shared)
        stack.callback(stub.process.stop)
        peers = []
        for name in ("off", "on"):
            home = stack.enter_context(tempfile.TemporaryDirectory())
            config: dict[str, object] = {
                "local": {"home": home},
                "cache": {"enabled": name == "on", "timeout_ms": 2000},
            }
            peer = replace(bitgear(Setting(stub, folder / name, own, extra_config=config)), name=name)
            assert peer.process is not None
            stack.callback(peer.process.stop)
            peers.append(peer)
        off, on = peers
        figures, wrong = latency(off, on, rounds, count)
        what, bodies = workload(options.workload, options.requests)
        saved = replay(on, bodies)
    kept = asyncio.run(many(entries, 2_000 if options.quick else 20_000))
    base = figures["no cache"]
    rows = [
        [
            kind,
            *(f"{f[p]:.0f}" for p in ("p50", "p99", "cpu")),
            *(f"{f[p] - base[p]:+.0f}" for p in ("p50", "p99", "cpu")),
        ]
        for kind, f in figures.items()
    ]
    print(table(["request", "p50 µs", "p99 µs", "CPU µs", "added p50", "added p99", "added CPU"], rows))
    print(f"\nworkload ({what}): " + ", ".join(f"{k} {v:.3g}" for k, v in saved.items()))
    print("\nentries: " + ", ".join(f"{k} {v:,.0f}" for k, v in kept.items()))
    path = write("cache", {"latency": figures, "wrong": wrong, "workload": {"what": what, **saved}, "entries": kept})
    print(f"\n{path}")
    if wrong or saved["errors"]:
        print(f"{wrong} answers were not what they should be, {saved['errors']:g} errors", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

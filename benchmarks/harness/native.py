"""The native stub upstream and load client: built where they are missing or older than their source."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.processes import Process, free_ports, spawn, wait_http

NATIVE = Path(__file__).resolve().parent.parent / "native"


class BuildError(RuntimeError):
    """The C tools could not be built; the message says what the compiler said."""


def build() -> None:
    """Makes both tools (a second with any C compiler). Raises BuildError."""
    try:
        done = subprocess.run(["make", "-s", "-C", str(NATIVE)], capture_output=True, text=True, timeout=120)
    except FileNotFoundError as error:
        raise BuildError(
            "the benchmarks need make and a C compiler (for example: apt-get install build-essential)"
        ) from error
    if done.returncode:
        raise BuildError(f"make in {NATIVE} failed:\n{done.stderr}")


@dataclass(frozen=True, slots=True)
class Stub:
    """A running stub upstream; it listens on several ports, so that it looks like several replicas."""

    process: Process
    ports: tuple[int, ...]

    @property
    def urls(self) -> tuple[str, ...]:
        """Base URLs of the replicas."""
        return tuple(f"http://127.0.0.1:{port}" for port in self.ports)

    def set(self, name: str, value: int) -> None:
        """Changes `delay_us` (pace of streams) or `fail_every` while it runs."""
        _get(f"{self.urls[0]}/stub/set?{name}={value}")

    def stats(self) -> dict[str, int]:
        """Its counters: requests, streams, chunks, conns, running, failed."""
        found: dict[str, int] = json.loads(_get(f"{self.urls[0]}/stub/stats"))
        return found


def start_stub(logs: Path, replicas: int = 1, cpu: int | None = None) -> Stub:
    """Starts the stub on free ports and waits until it answers."""
    ports = free_ports(replicas)
    argv = [str(NATIVE / "bin/stub_upstream"), *(a for p in ports for a in ("-p", str(p)))]
    process = spawn("stub", argv, logs, cpu=cpu)
    wait_http(f"http://127.0.0.1:{ports[0]}/health", 5, process)
    return Stub(process, ports)


def load(
    port: int, *args: object, key: str | None = None, cpu: int | None = None, timeout_s: float = 180
) -> dict[str, Any]:
    """Runs the load client (its options are in `native/load.c`) and gives its figures.

    An answer that is not whole counts in `errors`; the first one is shown on stderr.
    """
    argv = [str(NATIVE / "bin/load"), "-p", str(port), *map(str, args), *(["-a", key] if key else [])]
    if cpu is not None:
        argv = ["taskset", "-c", str(cpu), *argv]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s)
    if done.stderr.strip():
        print("   ", done.stderr.strip()[:300], file=sys.stderr)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=5) as answer:
        body: bytes = answer.read()
    return body

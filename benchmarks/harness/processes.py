"""Processes under measurement: start, end, CPU time and memory of a whole process tree, read from /proc."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


class StartError(RuntimeError):
    """A process ended or did not answer in time; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Process:
    """A started process, in a session of its own so that its children end with it."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """Process id of the tree's root."""
        return self.popen.pid

    def stop(self, grace_s: float = 5) -> None:
        """SIGTERM to the whole group, SIGKILL after `grace_s`."""
        for sig in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.pid, sig)
            except ProcessLookupError:
                return
            try:
                self.popen.wait(grace_s)
            except subprocess.TimeoutExpired:
                continue
            if sig is signal.SIGKILL:
                return


def spawn(
    name: str,
    argv: Sequence[str],
    logs: Path,
    env: Mapping[str, str] | None = None,
    cpu: int | None = None,
    cwd: Path | None = None,
) -> Process:
    """Starts a process, bound to one core where `cpu` is given; its output goes to `logs/NAME.log`."""
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{name}.log"
    bound = ["taskset", "-c", str(cpu), *argv] if cpu is not None and shutil.which("taskset") else list(argv)
    with log.open("wb") as out:
        popen = subprocess.Popen(
            bound, stdout=out, stderr=out, env={**os.environ, **(env or {})}, cwd=cwd, start_new_session=True
        )
    return Process(name, popen, log)


def free_ports(count: int) -> tuple[int, ...]:
    """Ports that nothing listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = tuple(int(s.getsockname()[1]) for s in sockets)
    for s in sockets:
        s.close()
    return ports


def wait_http(
    url: str,
    seconds: float,
    process: Process | None = None,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Returns once the URL answers 200. Raises StartError with the log's end."""
    request = urllib.request.Request(url, body, {"content-type": "application/json", **(headers or {})})
    end = time.monotonic() + seconds
    last: object = "nothing"
    while time.monotonic() < end:
        if process is not None and process.popen.poll() is not None:
            raise StartError(f"{process.name} ended with status {process.popen.returncode}:\n{_tail(process.log)}")
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                if answer.status == 200:
                    return
                last = answer.status
        except urllib.error.HTTPError as error:
            last = f"{error.code} {error.read()[:300]!r}"
        except OSError as error:
            last = error
        time.sleep(0.05)
    name, log = (process.name, _tail(process.log)) if process else (url, "")
    raise StartError(f"{name} does not answer {url} within {seconds:g} s (last: {last})\n{log}")


def tree(pid: int) -> list[int]:
    """The process and its descendants (some may end while it looks)."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        fields = _stat(int(entry)) if entry.isdigit() else None
        if fields:
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        todo += children.get(one, [])
    return found


def cpu_s(pid: int) -> float:
    """User and system time of the tree so far, seconds (resolution: one clock tick, commonly 10 ms)."""
    fields = [f for f in map(_stat, tree(pid)) if f]
    return sum(int(f[11]) + int(f[12]) for f in fields) / TICK


def pss_mib(pid: int) -> float:
    """Proportional memory of the tree, MiB: shared pages count once."""
    return sum(pss_by_process(pid).values())


def pss_by_process(pid: int) -> dict[str, float]:
    """Proportional memory of each process of the tree, MiB, by process id and name."""
    found = {}
    for one in tree(pid):
        try:
            rollup = Path(f"/proc/{one}/smaps_rollup").read_text()
            name = Path(f"/proc/{one}/comm").read_text().strip()
        except OSError:
            continue
        kib = sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
        found[f"{one} {name}"] = kib / 1024
    return found


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat after the name; None where the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]

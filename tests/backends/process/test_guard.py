from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

import pytest

from backends.process import guard

FILE = str(Path(guard.__file__).resolve())

# A parent as a supervisor is: it holds the pipe's other end and the guard as its child.
PARENT = """
import os, subprocess, sys, time
read, write = os.pipe()
extra = ["--fd", str(read)] if "pipe" in sys.argv[1] else []
extra += ["--parent", str(os.getpid())] if "signal" in sys.argv[1] else []
child = subprocess.Popen([sys.executable, "-I", "-S", *sys.argv[2:4], *extra, "--", *sys.argv[4:]], pass_fds=(read,), start_new_session=True)
os.close(read)
open(sys.argv[3].partition("=")[2] + ".guard", "w").write(str(child.pid))
time.sleep(600)
"""


class Tree(Protocol):
    pids: list[int]

    def argv(self, mode: str = "plain") -> list[str]: ...
    def wait_up(self) -> list[int]: ...
    def wait_gone(self, seconds: float = 30.0) -> None: ...


def _start(*arguments: str, command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-I", "-S", FILE, *arguments, "--", *command])


@pytest.mark.parametrize("mode", ["plain", "stubborn"])
def test_sigterm_ends_the_whole_tree(tree: Tree, mode: str) -> None:
    process = _start("--grace", "1", command=tree.argv(mode))
    tree.wait_up()
    process.terminate()
    code = process.wait(30)
    assert code == 128 + (signal.SIGKILL if mode == "stubborn" else signal.SIGTERM)
    tree.wait_gone(0.5)


@pytest.mark.parametrize("how", ["pipe", "signal", "pipe+signal"])
def test_nothing_outlives_a_killed_parent(tree: Tree, tmp_path: Path, how: str) -> None:
    log = tmp_path / "out.log"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, how, FILE, f"--log={log}", *tree.argv("stubborn")])
    guarded = tree.wait_up()
    pid = int(Path(f"{log}.guard").read_text())
    parent.kill()
    parent.wait(30)
    # The default grace is 20 s for what ignores SIGTERM; a second SIGTERM hurries.
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGTERM)
    tree.wait_gone()
    assert len(guarded) >= 3
    assert "up stubborn" in log.read_text()


def test_a_command_that_ends_leaves_nothing_and_gives_its_code(tree: Tree) -> None:
    process = _start("--grace", "1", command=tree.argv("quits"))
    assert process.wait(30) == 7
    tree.wait_gone(0.5)
    assert len(tree.pids) >= 3


def test_a_signal_that_ended_the_command_is_told(tree: Tree) -> None:
    process = _start(command=["/bin/sh", "-c", "kill -9 $$"])
    assert process.wait(30) == 128 + signal.SIGKILL


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    process = _start("--log", str(log), command=["/no/such/command"])
    assert process.wait(30) == 127
    assert "cannot start /no/such/command" in log.read_text()


def test_the_command_goes_with_a_killed_guard() -> None:
    process = _start("--log", "/dev/null", command=["/bin/sleep", "600"])
    children: list[int] = []
    deadline = time.monotonic() + 20
    while not children and time.monotonic() < deadline:
        children = guard.descendants(process.pid)
    process.kill()
    process.wait(30)
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{c}").exists() for c in children) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert children
    assert not any(Path(f"/proc/{c}").exists() for c in children)


def test_logs_are_rotated_and_bounded(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "x.log"
    script = "for i in range(3000): print(f'line {i:05d}', flush=i % 100 == 0)"
    process = _start(
        "--log", str(log), "--log-bytes", "4096", "--log-files", "3", command=[sys.executable, "-c", script]
    )
    assert process.wait(60) == 0
    files = sorted(p.name for p in log.parent.iterdir())
    assert files == ["x.log", "x.log.1", "x.log.2"]
    assert all(p.stat().st_size <= 4096 + 65536 for p in log.parent.iterdir())
    assert log.read_text().endswith("line 02999\n")


def test_a_talkative_command_can_be_ended(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    process = _start("--grace", "1", "--log", str(log), "--log-bytes", "100000", command=["/usr/bin/env", "yes"])
    try:
        deadline = time.monotonic() + 20
        while _size(log) <= 50_000 and time.monotonic() < deadline:
            time.sleep(0.01)
        process.terminate()
        assert process.wait(20) == 128 + signal.SIGTERM
    finally:
        process.kill()


def _size(path: Path) -> int:
    """Bytes of a file that may be renamed at any time."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def test_each_start_is_marked(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    for _ in range(2):
        assert _start("--log", str(log), command=["/bin/echo", "a word"]).wait(30) == 0
    lines = log.read_text().splitlines()
    assert [line.startswith(guard.START_MARK) for line in lines] == [True, False, True, False]
    assert lines[0].endswith(": /bin/echo 'a word'")


def test_one_file_is_begun_anew(tmp_path: Path) -> None:
    log = guard.Log(tmp_path / "x.log", 10, 1)
    for text in (b"12345678", b"abcdefgh"):
        log.write(text)
    assert (tmp_path / "x.log").read_bytes() == b"abcdefgh"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_disk_that_is_full_loses_lines_only(tmp_path: Path) -> None:
    log = guard.Log(Path("/dev/full"), 1 << 20, 3)
    log.write(b"lost")


def test_the_process_table_has_us() -> None:
    rows = {pid: (parent, session) for pid, _, parent, session in guard.process_table()}
    assert rows[os.getpid()] == (os.getppid(), os.getsid(0))


def test_signals_to_the_gone_are_passed_over() -> None:
    child = subprocess.Popen(["/bin/true"])
    child.wait(30)
    guard.send([child.pid], signal.SIGTERM)

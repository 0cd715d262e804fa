from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

TREE = """
import os, signal, subprocess, sys, time
folder, mode = sys.argv[1], sys.argv[2]
if mode != "leaf":
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, __file__, folder, "leaf", "stubborn" if mode == "stubborn" else "plain"])
    # A grandchild that leaves its parent and session, as daemons do.
    subprocess.run([sys.executable, "-c",
        "import os, subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)",
        sys.executable, __file__, folder, "leaf", "daemon"], check=True)
elif sys.argv[3] in ("stubborn", "daemon"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", mode, flush=True)
open(os.path.join(folder, str(os.getpid())), "w").close()
if mode == "quits":
    while len(os.listdir(folder)) < 3:
        time.sleep(0.01)
    sys.exit(7)
time.sleep(600)
"""


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rindex(")") + 2] != "Z"


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Wait until something holds; fail with its name after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"after {seconds} s: not {what}")
        time.sleep(0.02)


class Tree:
    """A command that starts a child and a daemon of its own; each leaves its process id as a file's name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "pids"
        self.folder.mkdir()
        self.script = folder / "tree.py"
        self.script.write_text(TREE)

    def argv(self, mode: str = "plain") -> list[str]:
        return [sys.executable, str(self.script), str(self.folder), mode]

    @property
    def pids(self) -> list[int]:
        return [int(p.name) for p in self.folder.iterdir()]

    def wait_up(self) -> list[int]:
        wait_for(lambda: len(self.pids) >= 3, "up with child and daemon")
        return self.pids

    def wait_gone(self, seconds: float = 60.0) -> None:
        wait_for(lambda: not any(alive(p) for p in self.pids), "gone", seconds)

    def clear(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)

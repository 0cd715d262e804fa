"""A test of time is run again when the process was held up, and only then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.held_up import ROUNDS

CONFTEST = "from tests.support.held_up import pytest_runtest_protocol\n__all__ = ['pytest_runtest_protocol']\n"
PROGRAM = """
import os, signal, subprocess, sys
import pytest
from tests.support import held_up

def stand_still():
    goes_on = f"import os, time; time.sleep(0.3); os.kill({os.getpid()}, 18)"
    with subprocess.Popen([sys.executable, "-S", "-c", goes_on]):
        os.kill(os.getpid(), signal.SIGSTOP)

@pytest.fixture
def number(request, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / request.node.name
    text = path.read_text() if path.exists() else ""
    path.write_text(text + "x")
    print(request.node.name, "begins")
    return len(text)

@pytest.mark.timing
def test_held_up_once(number):
    if number == 0:
        stand_still()
        raise AssertionError("late")

@pytest.mark.timing
def test_held_up_always(number):
    stand_still()
    raise AssertionError("always late")

@pytest.mark.timing
def test_held_up_and_well(number):
    stand_still()

def test_without_the_mark(number):
    stand_still()
    raise AssertionError("late")

@pytest.mark.timing
def test_not_held_up(number):
    held_up.HELD_UP_S = 1e9
    raise AssertionError("wrong")
"""


def test_what_was_held_up_is_tried_again_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(PROGRAM)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = timing: x\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:randomly", "-p", "no:cacheprovider", "-s", "-q", str(tmp_path)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300, check=False
    )  # fmt: skip
    began = {name: done.stdout.count(f"test_{name} begins") for name in ("held_up_once", "held_up_always")}
    assert began == {"held_up_once": 2, "held_up_always": ROUNDS}, done.stdout + done.stderr
    assert done.stdout.count("test_held_up_and_well begins") == 1
    assert done.stdout.count("test_without_the_mark begins") == 1
    assert done.stdout.count("test_not_held_up begins") == 1
    assert "3 failed, 2 passed" in done.stdout
    assert done.returncode == pytest.ExitCode.TESTS_FAILED

"""The command line as a whole: it starts fast, names its commands, imports nothing heavy."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from router.cli.main import app

COMMANDS = ["up", "serve", "quantize", "route", "status", "config", "cache", "classifier"]


def test_help_names_every_command() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert all(command in result.output for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0, result.output


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith("bitgear ")


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from router.cli.main import app\n"
        "heavy = {'pydantic', 'fastapi', 'uvicorn', 'redis', 'httpx', 'numpy', 'yaml', 'orjson', 'asyncio'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_help_starts_in_well_under_a_second() -> None:
    # Time of the processor, the best of three, and beside what it is made with: machines differ, and others share them.
    times, alone = [], []
    for _ in range(3):
        times.append(processor_s("-m", "router.cli.main", "--help"))
        alone.append(processor_s("-c", "import typer"))
    assert min(times) < 5 * min(alone)


def processor_s(*program: str) -> float:
    """Seconds of the processor that an interpreter takes for this."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *program], capture_output=True, timeout=60, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

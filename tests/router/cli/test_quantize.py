"""`bitgear quantize`: mistakes are named; with an engine it writes a checkpoint that says its precision."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from router.cli.main import app


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tiny", "--precision", "int3"], "--precision: found 'int3', expected int8 or int4"),
        (["tiny", "--precision", "int4", "--method", "magic"], "--method: found 'magic'"),
    ],
)
def test_mistakes_name_the_option(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["quantize", *arguments])
    assert result.exit_code == 2
    assert words in result.output


def test_a_missing_source_is_told(tmp_path: Path) -> None:
    source = str(tmp_path / "nothing")
    result = CliRunner().invoke(app, ["quantize", source, "--precision", "int4", "--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.vllm
def test_the_tiny_model_at_int4(tmp_path: Path) -> None:
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("no engine here")
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["quantize", "tiny", "--precision", "int4", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert result.stdout.strip() == str(out)
    assert json.loads((out / "config.json").read_text())["quantization_config"]

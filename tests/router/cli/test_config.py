"""`bitgear config`: what check, show and schema print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from router.cli.main import app
from router.config.load import load
from router.config.schema import Config

DEFAULT_YAML = Path(__file__).parents[3] / "config" / "default.yaml"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["config", *arguments])


def test_check_of_a_right_file(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("server: {port: 1}")
    result = invoke("check", str(file))
    assert result.exit_code == 0
    assert "right (0 groups, 0 variants)" in result.output


def test_check_of_a_wrong_file_names_every_mistake(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("server:\n  port: x\n  hots: y\n")
    result = invoke("check", str(file))
    assert result.exit_code == 2
    assert "a.yaml:2: server.port" in result.output
    assert "a.yaml:3: server.hots" in result.output
    assert "Traceback" not in result.output


def test_check_of_a_missing_file() -> None:
    result = invoke("check", "/nowhere/none.yaml")
    assert result.exit_code == 2
    assert "no such file" in result.output


def test_show_commented_without_a_file_is_default_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BITGEAR_LOCAL__HOME")
    result = invoke("show", "--commented")
    assert result.output == DEFAULT_YAML.read_text()


def test_show_is_effective_and_loads_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BITGEAR_SERVER__PORT", "9000")
    result = invoke("show")
    assert result.exit_code == 0
    file = tmp_path / "shown.yaml"
    file.write_text(result.stdout)
    assert load(file, {}).server.port == 9000


def test_show_hides_secrets(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        "redis: {url: 'redis://me:hunter2@h:1/0'}\n"
        "groups: {g: {backends: [{precision: int4, kind: vllm, vllm: {env: {HF_TOKEN: hunter2, X: shown}}}]}}\n"
    )
    for arguments in (["show"], ["show", "--commented"]):
        result = invoke(*arguments, "--config", str(file))
        assert result.exit_code == 0
        assert "hunter2" not in result.output
        assert "shown" in result.output


def test_schema_is_json_schema_of_the_configuration() -> None:
    schema = json.loads(invoke("schema").output)
    assert schema["$schema"].endswith("2020-12/schema")
    assert set(schema["properties"]) == set(Config.model_fields)

"""`bitgear classifier` hands its arguments over as they are."""

from __future__ import annotations

from typer.testing import CliRunner

from router.cli.main import app


def test_help_is_the_classifiers_own() -> None:
    result = CliRunner().invoke(app, ["classifier", "--help"])
    assert result.exit_code == 0
    assert "explain" in result.output


def test_an_unknown_command_is_its_mistake() -> None:
    result = CliRunner().invoke(app, ["classifier", "nonsense"])
    assert result.exit_code == 2

"""`bitgear tune`: what it refuses, and what it says when nobody is there."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from router.cli.main import app


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["tune", *words])
    return result.exit_code, result.output


def test_a_report_needs_a_jobs_name() -> None:
    code, output = run("report", "--url", "http://127.0.0.1:9", "--token", "t")
    assert code == 2
    assert "bitgear tune report ID" in output


def test_a_word_too_many_is_refused_before_anything_is_asked() -> None:
    code, output = run("g", "h", "--url", "http://127.0.0.1:9", "--token", "t")
    assert code == 2
    assert "'h' is one argument too many" in output


def test_a_folder_that_cannot_be_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "out"
    code, output = run("g", "--once", "--folder", str(folder), "--url", "http://127.0.0.1:9", "--token", "t")
    assert code == 2
    assert "Not a directory" in output


@pytest.mark.parametrize("words", [("g", "--once"), ("report", "abc")])
def test_nobody_there_is_said(words: tuple[str, ...]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        code, output = run(*words, "--url", f"http://127.0.0.1:{free.getsockname()[1]}", "--token", "t")
    assert code == 1
    assert "is `bitgear up` running there?" in output

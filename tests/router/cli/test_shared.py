"""Where commands find the shared state of a Bitgear that has a server of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer import Exit

from router.cli.operator import write_own
from router.cli.shared import shared_state
from router.config.load import load
from router.config.runtime import Runtime
from router.config.schema import Config


def config(home: Path, **settings: str) -> Config:
    return load(None, {"BITGEAR_LOCAL__HOME": str(home), **settings})


def begin(home: Path, number: int, port: int) -> None:
    folder = home / "run" / f"run-{number}-x"
    folder.mkdir(parents=True)
    write_own(folder, "token", f"http://127.0.0.1:{port}")
    Runtime(redis_url=f"unix:///tmp/{number}.sock").write(folder / "runtime.json")


def test_the_one_named_then_the_configured_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(tmp_path, 1, 8401)
    monkeypatch.setenv("SECRET", "s")
    configured = config(tmp_path, BITGEAR_REDIS__URL="redis://h:1", BITGEAR_REDIS__PASSWORD_ENV="SECRET")
    assert shared_state(configured, None) == ("redis://h:1", "s")
    assert shared_state(configured, "redis://other:1") == ("redis://other:1", "s")


def test_else_the_private_one_of_the_bitgear_that_runs_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Exit):
        shared_state(config(tmp_path), None)
    assert "redis.url" in capsys.readouterr().err
    begin(tmp_path, 1, 9401)
    # Started with --admin-port: the only one that runs is meant.
    assert shared_state(config(tmp_path), None) == ("unix:///tmp/1.sock", None)
    begin(tmp_path, 2, 8401)
    assert shared_state(config(tmp_path), None) == ("unix:///tmp/2.sock", None)
    with pytest.raises(Exit):
        shared_state(config(tmp_path, BITGEAR_ADMIN__PORT="7000"), None)

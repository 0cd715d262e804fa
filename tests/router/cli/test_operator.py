"""Where a command finds its token, and what `bitgear admin` asks for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from router.cli.main import app
from router.cli.operator import operator, write_own
from tests.support.admin import FakeAdmin

CHANGED = {"version": 7, "dry_run": False, "diff": [{"path": "config.x", "before": 1, "after": 2}]}


@pytest.fixture(autouse=True)
def _changed(admin: FakeAdmin) -> None:
    admin.answer = CHANGED


def run(admin: FakeAdmin, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["admin", *arguments, "--url", f"{admin.url}/", "--token", "t"])
    assert result.exit_code == 0, result.output
    return result.output


def test_each_command_asks_the_right_thing(admin: FakeAdmin, tmp_path: Path) -> None:
    patch = tmp_path / "p.yaml"
    patch.write_text("thresholds: {int8: 0.1}")
    path = "/admin/groups/g/variants/int4/replicas"
    for arguments, method, wanted, body in (
        (["config", "set", "a.b", "[1, x]"], "PATCH", "/admin/config?dry_run=false&reason=", {"a": {"b": [1, "x"]}}),
        (["config", "patch", str(patch), "--dry-run", "--reason", "a b"], "PATCH",
         "/admin/config?dry_run=true&reason=a%20b", {"thresholds": {"int8": 0.1}}),
        (["rollback", "3"], "POST", "/admin/rollback", {"version": 3, "reason": ""}),
        (["thresholds", "a/b", "int8=0.2"], "PUT", "/admin/groups/a%2Fb/thresholds",
         {"thresholds": {"int8": 0.2}, "reason": ""}),
        (["replicas", "add", "g@int4", "http://h:1"], "POST", path, {"url": "http://h:1"}),
        (["replicas", "drain", "g@int4", "http://h:1"], "POST", f"{path}/drain", {"url": "http://h:1"}),
        (["replicas", "remove", "g@int4", "http://h:1"], "DELETE", f"{path}?url=http%3A%2F%2Fh%3A1", None),
        (["tuning", "approve", "j1"], "POST", "/admin/tuning/jobs/j1/approve", None),
        (["tuning", "pause", "g"], "POST", "/admin/tuning/groups/g/pause", None),
    ):  # fmt: skip
        output = run(admin, *arguments)
        assert admin.asked[-1] == (method, wanted, body, "Bearer t"), arguments
        assert "7" in output
    assert "config.x: 1 -> 2" in run(admin, "rollback", "3")


def test_what_is_printed(admin: FakeAdmin) -> None:
    admin.answer = {"scenarios": {"batch": {"e2e_ms": 5}}}
    assert run(admin, "config", "get", "scenarios.batch") == "e2e_ms: 5\n"
    admin.answer = [{"version": 2, "at": 0.0, "by": "ann", "reason": "why"}]
    assert "ann" in run(admin, "versions")
    admin.answer = {"name": "a", "key": "sk-once", "version": 1}
    assert run(admin, "keys", "make", "a") == "sk-once\n"
    body = admin.asked[-1].body
    assert (body["cache"], body["expires"], body["scenario"]) == (None, None, None)
    run(admin, "keys", "make", "a", "--scenario", "batch", "--no-cache", "--days", "2", "--max-concurrent", "3")
    body = admin.asked[-1].body
    assert (body["scenario"], body["cache"], body["max_concurrent"]) == ("batch", "none", 3)
    run(admin, "keys", "make", "a", "--tokens-per-minute", "5000")
    assert admin.asked[-1].body["tokens_per_minute"] == 5000
    admin.answer = {"requests_per_minute": 60, "tokens_per_minute": None, "max_concurrent": None}
    said = run(admin, "keys", "limit", "a", "--requests-per-minute", "60", "--tokens-per-minute", "0")
    assert said == "requests a minute: 60  tokens a minute: no limit  at once: no limit\n"
    assert admin.asked[-1][:2] == ("PATCH", "/admin/keys/a")
    assert admin.asked[-1].body == {"requests_per_minute": 60, "tokens_per_minute": None}
    assert body["expires"] == pytest.approx(time.time() + 2 * 86_400, abs=60)
    limits = {"requests_per_minute": None, "tokens_per_minute": 200_000, "max_concurrent": 3}
    keys = {"disabled": False, "source": "api", "tenant": "", "groups": [], **limits}
    admin.answer = [{"name": "old", "expires": 1.0, **keys}, {"name": "new", "expires": None, **keys}]
    lines = run(admin, "keys", "list").splitlines()
    assert [line.split()[1] for line in lines] == ["expired", "active"]
    assert all(line.endswith("all groups  tokens a minute 200000  at once 3") for line in lines)


def test_wrong_words_are_refused_before_anything_is_asked(admin: FakeAdmin) -> None:
    for arguments in (
        ["replicas", "add", "g", "http://h:1"],
        ["thresholds", "g", "int8"],
        ["keys", "limit", "a"],
        ["config", "set", "a", "{"],
    ):
        result = CliRunner().invoke(app, ["admin", *arguments, "--url", admin.url])
        assert result.exit_code == 2
        assert "bitgear:" in result.output
    assert admin.asked == []


def test_the_token_of_the_bitgear_that_runs_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BITGEAR_ADMIN_TOKEN", raising=False)
    monkeypatch.setenv("BITGEAR_LOCAL__HOME", str(tmp_path))
    for number, port in ((1, 8401), (2, 9401)):
        folder = tmp_path / "run" / f"run-{number}-x"
        folder.mkdir(parents=True)
        file = write_own(folder, f"token-{number}", f"http://127.0.0.1:{port}")
        assert file.stat().st_mode & 0o777 == 0o600
    assert operator(None, None, None).token == "token-1"
    assert operator("http://127.0.0.1:9401/", None, None).token == "token-2"
    assert operator("http://other:8401", None, None).token is None
    assert operator(None, "given", None).token == "given"
    monkeypatch.setenv("BITGEAR_ADMIN_TOKEN", "from-env")
    assert operator(None, None, None).token == "from-env"

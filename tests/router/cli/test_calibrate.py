"""How `bitgear calibrate` learns of a running Bitgear's variants."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from router.cli.main import app
from router.cli.operator import write_own
from tests.support.admin import FakeAdmin


def test_it_asks_the_admin_api_with_a_token(admin: FakeAdmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BITGEAR_ADMIN_TOKEN", raising=False)
    monkeypatch.setenv("BITGEAR_LOCAL__HOME", str(tmp_path))
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": "hello"}))
    admin.answer = [{"group": "other", "variant": "fp16", "kind": "openai"}]
    words = ["calibrate", "g", "--prompts", str(prompts), "--out", str(tmp_path / "g.json"), "--admin", f"{admin.url}/"]
    folder = tmp_path / "run" / "run-1-x"
    folder.mkdir(parents=True)
    write_own(folder, "its-own", admin.url)
    for more, sent in (([], "Bearer its-own"), (["--token", "given"], "Bearer given")):
        done = CliRunner().invoke(app, [*words, *more])
        assert (done.exit_code, "the proxy has: other" in done.stderr) == (2, True), done.output
        assert (admin.asked[-1].path, admin.asked[-1].authorization) == ("/admin/variants", sent)


def test_what_no_artefact_can_be_made_of_is_refused_before_anybody_is_asked(admin: FakeAdmin, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": "hello"}))
    words = ["calibrate", "g", "--prompts", str(prompts), "--out", str(tmp_path / "g.json"), "--admin", admin.url]
    for option, known in (("--kind", "blend"), ("--label", "divergence")):
        done = CliRunner().invoke(app, [*words, "--token", "t", option, "nope"])
        assert done.exit_code == 2
        assert f"{option}: found 'nope', expected one of" in done.stderr
        assert known in done.stderr
    assert admin.asked == []

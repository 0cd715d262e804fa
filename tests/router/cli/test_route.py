"""`bitgear route` where Bitgear asks for an API key."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from router.cli.main import app
from tests.support.admin import FakeAdmin


def test_it_sends_the_key_with_every_question(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-alice")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    admin.answers = {"GET": {"data": [{"id": "g"}]}, "POST": {"decision": {"variant": "int4"}}}
    for more, sent in ((["--key-env", "MY_KEY"], "Bearer sk-alice"), ([], None)):
        done = CliRunner().invoke(app, ["route", "hello", "--url", f"{admin.url}/v1", *more])
        assert (done.exit_code, "variant: int4" in done.output) == (0, True)
        assert [(one.path, one.authorization) for one in admin.asked[-2:]] == [
            ("/v1/models", sent),
            ("/v1/route", sent),
        ]

"""`bitgear cache` against an admin address."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from router.cli.main import app
from tests.support.admin import FakeAdmin


@pytest.fixture(autouse=True)
def _answers(admin: FakeAdmin) -> None:
    admin.answers = {"GET": {"state": "up", "writable": True}, "POST": {"purged": 3}}


def orders(admin: FakeAdmin) -> list[Any]:
    """Bodies of what was posted."""
    return [one.body for one in admin.asked if one.method == "POST"]


def run(admin: FakeAdmin, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["cache", *arguments, "--url", f"{admin.url}/"])


def test_status(admin: FakeAdmin) -> None:
    assert run(admin, "status").output == "state: up\nwritable: True\n"


def test_purge_says_what_to_take_out(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHO", "Bearer sk-bob")
    assert run(admin, "purge", "--group", "g", "--older-than", "60").output == "3 answers taken out\n"
    assert run(admin, "purge", "--tenant", "t", "--key", "k").exit_code == 0
    assert run(admin, "purge", "--credential-env", "WHO").exit_code == 0
    assert run(admin, "purge", "--all").exit_code == 0
    assert orders(admin) == [
        {"group": "g", "older_than_s": 60.0, "everything": False},
        {"tenant": "t", "key": "k", "everything": False},
        {"credential": "Bearer sk-bob", "everything": False},
        {"everything": True},
    ]


def test_nothing_is_purged_by_mistake(admin: FakeAdmin) -> None:
    for arguments in (["purge"], ["purge", "--credential-env", "NOT_SET_AT_ALL"]):
        result = run(admin, *arguments)
        assert result.exit_code == 2
        assert "bitgear:" in result.output
    assert orders(admin) == []

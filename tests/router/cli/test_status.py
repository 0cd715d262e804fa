"""`bitgear status`: what is ready, and what is drained though it is."""

from __future__ import annotations

from typer.testing import CliRunner

from router.cli.main import app
from tests.support.admin import FakeAdmin


def test_a_drained_replica_is_told(admin: FakeAdmin) -> None:
    up, drained = {"ready": True, "draining": False}, {"ready": True, "draining": True}
    admin.answer = [
        {"group": "g", "variant": name, "kind": "openai", "replicas": rows}
        for name, rows in (("fp16", [up, up]), ("int4", [up, drained]))
    ]
    lines = CliRunner().invoke(app, ["status", "--url", admin.url, "--token", "t"]).output.splitlines()
    full, lower = (next(line for line in lines if name in line) for name in ("g@fp16", "g@int4"))
    assert "2/2 " in full
    assert "drained" not in full
    assert "2/2, 1 drained" in lower

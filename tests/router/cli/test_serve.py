"""`bitgear serve`: the proxy alone."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import httpx
from typer.testing import CliRunner

from router.cli.main import app
from tests.router.cli.processes import Running, alive


def test_without_groups_it_says_what_is_missing() -> None:
    result = CliRunner().invoke(app, ["serve"])
    assert result.exit_code == 2
    assert "no groups" in result.output


def test_launched_kinds_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("groups: {g: {backends: [{precision: int4, kind: vllm}]}}")
    result = CliRunner().invoke(app, ["serve", "--config", str(path)])
    assert result.exit_code == 2
    assert "g@int4 is of kind vllm" in result.output


def test_serves_without_its_servers_and_without_redis(bitgear: Callable[..., Running], tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "redis: {url: 'redis://127.0.0.1:9/0'}\n"
        "groups: {g: {backends: [{precision: int4, urls: ['http://127.0.0.1:9']}]}}"
    )
    one = bitgear("serve", "--config", str(path), "--port", "0", "--admin-port", "0")
    text = one.until_says("Ctrl-C ends it.")
    api = text.split("Bitgear serves")[1].split("/v1")[0].strip()
    assert [m["id"] for m in httpx.get(f"{api}/v1/models", trust_env=False).json()["data"]] == ["g", "g@int4"]
    body = {"model": "g", "messages": [{"role": "user", "content": "hi"}]}
    assert httpx.post(f"{api}/v1/chat/completions", json=body, trust_env=False, timeout=30).status_code == 503
    family = one.family()
    assert one.ended(signal.SIGTERM) == 0
    assert alive(family) == []

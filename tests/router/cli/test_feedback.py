"""`bitgear feedback` against a real worker and a real Valkey server."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from redis import Redis
from typer.testing import CliRunner

from backends.settings import SimulatorSettings
from backends.simulator import simulated
from router.cli.main import app
from router.feedback.entry import label_entry
from router.store.valkey import PrivateValkey
from tests.conftest import running, until
from tests.support.client import chat, fetch


async def run(*words: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, app, ["feedback", *words])


async def test_say_it_and_see_whether_judges_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-alice")
    server = PrivateValkey(tmp_path / "valkey")
    server.start()
    try:
        async with (
            simulated(SimulatorSettings(time_scale=0), model="g", precision="int8") as int8,
            running({"int8": int8}, redis_url=server.url) as gear,
        ):
            headers = [("authorization", "Bearer sk-alice"), ("x-request-id", "mine")]
            await fetch(gear.url, "/v1/chat/completions", chat(model="g"), headers)
            said = await run("give", "mine", "--thumbs", "down", "--key-env", "MY_KEY", "--url", gear.url)
            assert (said.exit_code, said.stdout) == (0, "thumbs 0: taken\n")
            again = await run("give", "mine", "--thumbs", "down", "--key-env", "MY_KEY", "--url", gear.url)
            assert again.stdout == "thumbs 0: known already\n"
            stranger = await run("give", "mine", "--score", "1", "--key-env", "NOT_SET", "--url", gear.url)
            assert stranger.exit_code == 1
            assert "HTTP 404" in stranger.stderr
            with Redis.from_url(server.url) as client:
                await until(lambda: bool(client.xlen("bitgear:events")))
                facts: dict[str, Any] = json.loads(client.xrange("bitgear:events")[0][1][b"event"])
                pair = label_entry(facts, "shadow:match", 0.0, time.time(), reference=1.0)
                client.xadd("bitgear:feedback", {"feedback": json.dumps(pair)})
            found = await run("agreement", "g", "--redis", server.url)
            shown = await asyncio.to_thread(CliRunner().invoke, app, ["events", "show", "mine", "--redis", server.url])
            assert shown.exit_code == 0, shown.output
            for word in ("status=200", "variant=int8", "reason=within_limits", "thumbs: 0"):
                assert word in shown.stdout
            assert "shadow:match: 0 (full precision 1)" in shown.stdout
            unknown = await asyncio.to_thread(CliRunner().invoke, app, ["events", "show", "min", "--redis", server.url])
            assert (unknown.exit_code, "no event of 'min'" in unknown.stderr) == (1, True)
            assert found.exit_code == 0
            assert found.stdout.splitlines() == [
                "1 requests, 2 labels",
                "shadow:match: 1 answers, agreed 100.0% (by chance 100.0%), kappa none",
            ]
    finally:
        server.stop()


async def test_one_of_the_two_is_said() -> None:
    for words in ((), ("--thumbs", "up", "--score", "1")):
        found = await run("give", "x", *words)
        assert found.exit_code == 2
    assert (await run("agreement", "g")).exit_code == 2

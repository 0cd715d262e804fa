"""`bitgear serve`: the proxy alone."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from typer.testing import CliRunner

from router.cli.main import app
from tests.router.cli.processes import Running, alive
from tests.support.upstream import ScriptedUpstream, Send, Sleep
from tests.support.wire import ChatWire, json_response

FILE = """
server: {workers: 2}
groups:
  my-model:
    scenario: batch
    backends:
      - {precision: fp16, model: big, urls: ['%s', '%s']}
      - {precision: int8, model: small, urls: ['%s']}
"""
REQUEST = json.dumps({"model": "my-model", "messages": [{"role": "user", "content": "hi"}]}).encode()


async def serving(start: Callable[..., Running], folder: Path, big: list[str], small: str) -> tuple[Running, str]:
    """Start `bitgear serve` in front of running servers; the process and its API's base URL, once all are ready."""
    path = folder / "bitgear.yaml"
    path.write_text(FILE % (*big, small))
    one = start("serve", "--config", str(path), "--port", "0", "--admin-port", "0")
    text = await asyncio.to_thread(one.until_says, "Ctrl-C ends it.")
    assert re.search(r"^Logs +standard error$", text, re.MULTILINE)
    api = text.split("Bitgear serves")[1].split("/v1")[0].strip()
    async with httpx.AsyncClient(trust_env=False) as client, asyncio.timeout(60):
        for model in ("my-model@fp16", "my-model@int8"):
            while (
                await client.post(f"{api}/v1/chat/completions", json={**json.loads(REQUEST), "model": model})
            ).is_error:
                await asyncio.sleep(0.05)
    return one, api


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


def test_a_home_in_which_nothing_can_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BITGEAR_LOCAL__HOME", str(tmp_path))
    (tmp_path / "logs").write_text("a file in the folder's place")
    path = tmp_path / "a.yaml"
    path.write_text(FILE % (("http://127.0.0.1:9",) * 3))
    result = CliRunner().invoke(app, ["serve", "--config", str(path), "--port", "0", "--admin-port", "0"])
    assert result.exit_code == 2
    assert "local.home: cannot write in" in result.output
    assert list((tmp_path / "run").iterdir()) == []


def test_serves_without_its_servers_and_without_redis(bitgear: Callable[..., Running], tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "redis: {url: 'redis://127.0.0.1:9/0'}\n"
        "groups: {g: {backends: [{precision: int4, urls: ['http://127.0.0.1:9']}]}}"
    )
    one = bitgear("serve", "--config", str(path), "--port", "0", "--admin-port", "0")
    text = one.until_says("Ctrl-C ends it.")
    api = text.split("Bitgear serves")[1].split("/v1")[0].strip()
    assert [m["id"] for m in httpx.get(f"{api}/v1/models", trust_env=False, timeout=60).json()["data"]] == [
        "g",
        "g@int4",
    ]
    body = {"model": "g", "messages": [{"role": "user", "content": "hi"}]}
    assert httpx.post(f"{api}/v1/chat/completions", json=body, trust_env=False, timeout=30).status_code == 503
    family = one.family()
    assert one.ended(signal.SIGTERM) == 0
    assert alive(family) == []


async def one_request(api: str, pause_s: float) -> str:
    """Connect, wait, ask; return what became of it."""
    parts = urlsplit(api)
    try:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except ConnectionRefusedError:
        return "refused"
    try:
        await asyncio.sleep(pause_s)
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % len(REQUEST) + REQUEST)
        answer = await asyncio.wait_for(reader.read(), 60)
    except OSError as error:
        return type(error).__name__
    finally:
        writer.close()
    status, body = answer[9:12].decode(), answer.partition(b"\r\n\r\n")[2]
    return status if body.endswith(b"}") and json.loads(body) else f"cut after {len(answer)} bytes"


@pytest.mark.timing
async def test_a_files_servers_answer_and_at_the_end_nobody_who_is_in_is_cut(
    bitgear: Callable[..., Running], tmp_path: Path
) -> None:
    async with ScriptedUpstream("big") as one, ScriptedUpstream("big") as two, ScriptedUpstream("small") as three:
        running, api = await serving(bitgear, tmp_path, [one.url, two.url], three.url)
        for up in (one, two, three):
            up.exchanges.clear()
        async with openai.AsyncOpenAI(base_url=f"{api}/v1", api_key="none") as client:
            listed = [m.id async for m in client.models.list()]
            assert listed == ["my-model", "my-model@fp16", "my-model@int8"]
            messages: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
            for model, asked in (("my-model@fp16", (one, two)), ("my-model@int8", (three,))):
                answer = await client.chat.completions.create(model=model, messages=messages)
                assert (answer.model, sum(len(up.exchanges) for up in asked)) == (model, 1)
            assert (await client.chat.completions.create(model="my-model", messages=messages)).model == "my-model"
        # Then the end, under load.
        for up in (one, two, three):
            up.always([Sleep(0.02), Send(json_response(ChatWire(up.model).answer()))])
        seen: Counter[str] = Counter()

        async def client(pause_s: float) -> None:
            while "refused" not in seen:
                seen[await one_request(api, pause_s)] += 1

        # A third of them take their time between connection and request.
        clients = [asyncio.create_task(client(0.15 if number % 3 == 0 else 0.0)) for number in range(24)]
        async with asyncio.timeout(60):
            while seen["200"] < 100:
                await asyncio.sleep(0.01)
        assert await asyncio.to_thread(running.ended, signal.SIGTERM) == 0
        await asyncio.gather(*clients)
    assert set(seen) == {"200", "refused"}, seen

"""Paths that pass through for a pinned variant: as they are, and never to a place outside /v1."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.conftest import Bitgear
from tests.support.client import chat, fetch
from tests.support.upstream import ScriptedUpstream

Start = Callable[..., Awaitable[Bitgear]]
CLIMBING = ["..", "%2e%2e", ".%2E", "%252e%252e", "..%2fx", "x%2f..", "..%5cx", "..\\x", "..;", "..;a=b", "x%00y"]


@pytest.fixture
async def up() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream("g") as server:
        yield server


async def test_no_path_leads_out_of_v1_whoever_reads_it_there(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    for part in [*CLIMBING, ".", "x%0d%0ay"]:
        answer = await fetch(gear.url, f"/v1/{part}/metrics", chat(model="g@fp16"))
        assert (answer.status, answer.json()["error"]["code"]) == (404, "unknown_path"), part
    assert not up.exchanges


async def test_other_paths_pass_as_they_are(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    for path in ("/v1/a..b/c", "/v1/...", "/v1/x;y=..", "/v1/100%25/x", "/v1/%C3%A4?a=%00&b=../c"):
        assert (await fetch(gear.url, path, chat(model="g@fp16"))).status == 200
        assert up.exchanges[-1].target == path

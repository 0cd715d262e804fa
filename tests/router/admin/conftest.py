"""A worker with a Redis of its own behind the admin API, and a client with a token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from tests.conftest import TOKEN, Bitgear
from tests.support.upstream import ScriptedUpstream, Send
from tests.support.wire import ChatWire, json_response

Start = Callable[..., Awaitable[Bitgear]]


@pytest.fixture
async def up() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream("g", max_model_len=777) as server:
        server.always([Send(json_response(ChatWire("g").answer()))])
        yield server


def configured(*urls: str, **more: Any) -> dict[str, Any]:
    """Group `g` with one variant at these URLs."""
    return {"groups": {"g": {"backends": [{"precision": "fp16", "urls": list(urls), "model": "g"}]}}, **more}


class Operator:
    """The admin API of one worker."""

    def __init__(self, gear: Bitgear) -> None:
        self.gear = gear
        self.http = httpx.AsyncClient(
            base_url=gear.admin_url, trust_env=False, timeout=30, headers={"authorization": f"Bearer {TOKEN}"}
        )

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.http.request(method, path, json=body, headers=given)


@pytest.fixture
async def operator(bitgear: Start, up: ScriptedUpstream, redis_url: str) -> AsyncIterator[Operator]:
    # A busy machine is no absent Redis.
    patient = configured(up.url, redis={"timeout_s": 5.0})
    gear = await bitgear({"fp16": up.url}, config=patient, redis_url=redis_url)
    found = Operator(gear)
    yield found
    await found.http.aclose()

"""A request that no variant would answer in time: served late by default, refused at once where configured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from backends.settings import SimulatorSettings
from backends.simulator import simulated
from tests.conftest import Bitgear
from tests.support.client import chat, fetch

SLOW = SimulatorSettings(overhead_ms=30)
BODY = chat("hello", model="g", max_tokens=2)


async def test_overload(bitgear: Callable[..., Awaitable[Bitgear]]) -> None:
    async with simulated(SLOW, model="g") as url:
        for overload, status in (("serve", 200), ("refuse", 503)):
            scenarios = {"realtime": {"ttft_ms": 5, "overload": overload}}
            gear = await bitgear({"fp16": url}, config={"scenarios": scenarios})
            answer = await fetch(gear.url, "/v1/chat/completions", BODY)
            assert answer.status == status
            batch = await fetch(gear.url, "/v1/chat/completions", BODY, headers=[("x-bitgear-scenario", "batch")])
            assert batch.status == 200
        error = answer.json()["error"]
        assert error["code"] == "overloaded"
        assert "realtime" in error["message"]
        assert int(answer.head.get("retry-after") or 0) >= 1

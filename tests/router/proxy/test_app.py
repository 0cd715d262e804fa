"""The whole proxy against simulated variants, through the official client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import httpx
import openai
import pytest

from backends.settings import SimulatorSettings
from backends.simulator import simulated
from tests.conftest import Bitgear

FAST = SimulatorSettings(time_scale=0)


@pytest.fixture
async def proxy(bitgear: Callable[..., Awaitable[Bitgear]]) -> AsyncIterator[Bitgear]:
    async with AsyncExitStack() as stack:
        urls = {
            p: await stack.enter_async_context(simulated(FAST, model="g", precision=p))
            for p in ("fp16", "int8", "int4")
        }
        yield await bitgear(urls)


async def test_plain_answer_names_the_model_and_explains_the_decision(proxy: Bitgear) -> None:
    client = openai.AsyncOpenAI(base_url=proxy.url + "/v1", api_key="none")
    raw = await client.chat.completions.with_raw_response.create(
        model="g", messages=[{"role": "user", "content": "hello"}], max_tokens=5
    )
    answer = raw.parse()
    assert answer.model == "g"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5
    decision = raw.headers["x-bitgear-decision"]
    assert "group=g" in decision
    assert "reason=within_limits" in decision


async def test_models_lists_groups_and_pins(proxy: Bitgear) -> None:
    client = openai.AsyncOpenAI(base_url=proxy.url + "/v1", api_key="none")
    assert [m.id async for m in client.models.list()] == ["g", "g@fp16", "g@int8", "g@int4"]
    assert (await client.models.retrieve("g@int4")).id == "g@int4"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("nope")


async def test_pinned_name_comes_back_as_the_client_wrote_it(proxy: Bitgear) -> None:
    client = openai.AsyncOpenAI(base_url=proxy.url + "/v1", api_key="none")
    stream = await client.chat.completions.create(
        model="g@int8", messages=[{"role": "user", "content": "hello"}], max_tokens=3, stream=True
    )
    chunks = [chunk async for chunk in stream]
    assert {chunk.model for chunk in chunks} == {"g@int8"}
    assert all(chunk.usage is None for chunk in chunks)


async def test_route_decides_without_sending(proxy: Bitgear) -> None:
    async with httpx.AsyncClient(timeout=60) as client:
        answer = await client.post(
            proxy.url + "/v1/route", json={"model": "g", "messages": [{"role": "user", "content": "hi"}]}
        )
    decision = answer.json()["decision"]
    assert decision["variant"] in ("fp16", "int8", "int4")
    assert [c["variant"] for c in decision["candidates"]] == ["fp16", "int8", "int4"]
    assert all(r.requests == 0 for v in proxy.worker.fleet.variants() for r in v.replicas)

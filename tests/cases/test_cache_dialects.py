"""`/v1/responses` and `/v1/messages` in the cache: simulated variants' own answers, read by the official clients."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import AsyncOpenAI

from backends.settings import SimulatorSettings
from backends.simulator import simulated
from tests.cases.helpers import Start, settled
from tests.conftest import Bitgear, until
from tests.support.client import Answer, fetch

FAST = SimulatorSettings(time_scale=0)
ADD = {
    "name": "add",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
}
RESPONSES: dict[str, dict[str, Any]] = {
    "text": {"input": "Name three colours.", "max_output_tokens": 12},
    "logprobs": {"input": "Hi", "max_output_tokens": 4, "include": ["message.output_text.logprobs"], "top_logprobs": 1},
    "a tool": {"input": "Add one.", "tools": [{"type": "function", **ADD}], "tool_choice": "required"},
    "metadata": {"input": "Hi", "max_output_tokens": 4, "metadata": {"a": "b"}},
}
MESSAGES: dict[str, dict[str, Any]] = {
    "text": {"max_tokens": 12},
    "a tool": {
        "max_tokens": 200,
        "tools": [{"name": "add", "input_schema": ADD["parameters"]}],
        "tool_choice": {"type": "any"},
    },
}


@pytest.fixture
async def gear(bitgear: Start, redis_url: str) -> AsyncIterator[Bitgear]:
    """A worker before one simulated variant."""
    async with simulated(FAST, model="g", precision="fp16") as url:
        worker: Bitgear = await bitgear({"fp16": url}, redis_url=redis_url)
        await until(lambda: worker.worker.caching.store.up)
        yield worker


async def ask(gear: Bitgear, path: str, body: dict[str, Any]) -> Answer:
    answer = await fetch(gear.url, path, {"model": "g", "temperature": 0, **body}, timeout=20)
    await settled(gear)
    assert answer.status == 200, answer.body
    return answer


def told(answer: Answer) -> str:
    return (answer.head.get("x-bitgear-cache") or "none").split(";")[0]


def plain(value: Any) -> Any:
    """Without ids and what says nothing."""
    if isinstance(value, dict):
        return {
            k: plain(v)
            for k, v in value.items()
            if v is not None and v != [] and k not in ("id", "created_at", "call_id", "item_id")
        }
    return [plain(v) for v in value] if isinstance(value, list) else value


def shape(answer: Answer) -> list[Any]:
    """The kinds of a stream's events, a run of equal ones once; and the whole text of all deltas."""
    kinds: list[str] = []
    text = ""
    for data in answer.events():
        event = json.loads(data)
        if not kinds or kinds[-1] != event["type"]:
            kinds.append(event["type"])
        delta = event.get("delta")
        if isinstance(delta, str):
            text += delta
        elif isinstance(delta, dict):
            text += delta.get("text") or (delta.get("partial_json") or "").replace(" ", "")
    return [*kinds, text]


@pytest.mark.parametrize("first_streams", [False, True])
@pytest.mark.parametrize("case", RESPONSES)
async def test_responses_share_one_entry(gear: Bitgear, case: str, first_streams: bool) -> None:
    body = RESPONSES[case]
    first = await ask(gear, "/v1/responses", {**body, "stream": first_streams})
    again = await ask(gear, "/v1/responses", {**body, "stream": first_streams})
    other = await ask(gear, "/v1/responses", {**body, "stream": not first_streams})
    assert [told(a) for a in (first, again, other)] == ["miss", "hit", "hit"]
    streamed, whole = (again, other) if first_streams else (other, again)
    events = [json.loads(e) for e in streamed.events()]
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    assert events[-1]["response"] == whole.json()
    if first_streams:
        assert shape(again) == shape(first)
    else:
        assert again.body == first.body
        # What a variant streams itself for the same request.
        fresh = await fetch(
            gear.url, "/v1/responses", {"model": "g", "temperature": 0, **body, "stream": True},
            [("cache-control", "no-store")],
        )  # fmt: skip
        assert shape(streamed) == shape(fresh)
        end = json.loads(fresh.events()[-1])
        assert plain(events[-1]["response"]["output"]) == plain(end["response"]["output"])


@pytest.mark.parametrize("first_streams", [False, True])
@pytest.mark.parametrize("case", MESSAGES)
async def test_messages_share_one_entry(gear: Bitgear, case: str, first_streams: bool) -> None:
    body = {"messages": [{"role": "user", "content": "Add 1 and 2."}], **MESSAGES[case]}
    first = await ask(gear, "/v1/messages", {**body, "stream": first_streams})
    again = await ask(gear, "/v1/messages", {**body, "stream": first_streams})
    other = await ask(gear, "/v1/messages", {**body, "stream": not first_streams})
    assert [told(a) for a in (first, again, other)] == ["miss", "hit", "hit"]
    streamed, whole = (again, other) if first_streams else (other, again)
    fresh = [
        await fetch(
            gear.url, "/v1/messages", {"model": "g", "temperature": 0, **body, "stream": s},
            [("cache-control", "no-store")],
        )
        for s in (True, False)
    ]  # fmt: skip
    assert shape(streamed) == shape(fresh[0])
    assert plain(whole.json()) == plain(fresh[1].json())
    assert json.loads(streamed.events()[-2])["usage"] == whole.json()["usage"]


async def test_the_official_client_reads_a_replayed_response(gear: Bitgear) -> None:
    body = RESPONSES["a tool"]
    client = AsyncOpenAI(base_url=gear.url + "/v1", api_key="k", max_retries=0)
    async with client:
        whole = await client.responses.create(model="g", temperature=0, **body)
        await settled(gear)
        async with client.responses.stream(model="g", temperature=0, **body) as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    call, again = whole.output[0], final.output[0]
    assert call.type == again.type == "function_call"
    assert call.arguments == again.arguments
    assert json.loads(call.arguments)
    assert whole.id == final.id


async def test_state_on_the_server_passes_by(gear: Bitgear) -> None:
    for more in ({"store": True}, {"background": True}):
        answers = [await ask(gear, "/v1/responses", {"input": "Hi", "max_output_tokens": 3, **more}) for _ in range(2)]
        assert [told(a) for a in answers] == ["bypass", "bypass"]
    # An answer repeats these two: they count here.
    kept = [{"metadata": {"a": "1"}}, {"metadata": {"a": "2"}}, {"user": "u"}]
    answers = [await ask(gear, "/v1/responses", {"input": "Hi", "max_output_tokens": 3, **more}) for more in kept]
    assert [told(a) for a in answers] == ["miss"] * 3
    assert [a.json()["metadata"] for a in answers] == [{"a": "1"}, {"a": "2"}, None]

"""Forms that an answer must have, and what no answer can have: told, and nobody else's trouble."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from backends.simulator.chat import ChatPlain, ChatStream
from tests.backends.simulator.conftest import Start
from tests.conftest import until

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}


def tool(name: str) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": name, "parameters": {}}}], "tool_choice": "required"}


async def post(client: httpx.AsyncClient, **more: Any) -> httpx.Response:
    # Escapes of lone surrogates are JSON.
    return await client.post("/v1/chat/completions", content=json.dumps({**ASK, **more}))


@pytest.mark.parametrize("stream", [False, True])
async def test_what_cannot_be_met_is_a_400_and_holds_nobody_up(simulator: Start, stream: bool) -> None:
    running = await simulator()
    schemas: list[Any] = [
        {"const": "\ud800"},
        {"type": "integer", "minimum": 3, "multipleOf": 0},
        {"$ref": "#/enum/²", "enum": []},
        {"type": "array", "minItems": "2"},
        "{",
        "[" * 100_000,
    ]
    odd: list[dict[str, Any]] = [
        *({"structured_outputs": {"json": schema}} for schema in schemas),
        *({"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}} for schema in schemas),
        {"structured_outputs": {"choice": 5}},
        {"structured_outputs": {"choice": ["\udfff"]}},
        {"structured_outputs": {"regex": 5}},
        tool("\ud800"),
    ]
    async with httpx.AsyncClient(base_url=running.url, timeout=60) as client:
        for more in odd:
            assert (await post(client, **more, stream=stream)).status_code == 400, str(more)[:200]
        assert (await post(client)).status_code == 200
    await until(lambda: running.simulator.core.engine.idle and running.simulator.core.in_flight == 0)


@pytest.mark.parametrize("where", ["first", "piece", "done"])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_cannot_be_told_ends_and_the_others_go_on(
    simulator: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str, stream: bool
) -> None:
    running = await simulator()
    kind = ChatStream if stream else ChatPlain

    def fails(*_: Any) -> None:
        raise ValueError("cannot be told")

    async with httpx.AsyncClient(base_url=running.url, timeout=60) as client:
        with monkeypatch.context() as patched:
            patched.setattr(kind, where, fails)
            failed = await post(client, stream=stream)
        assert b"Internal server error" in failed.content
        assert failed.status_code == (200 if stream else 500)
        assert running.simulator.core.in_flight == 0
        assert running.simulator.core.engine.idle
        assert (await post(client, stream=stream)).status_code == 200
    assert [r.getMessage() for r in caplog.records if r.exc_info] == ["a token could not be told"]

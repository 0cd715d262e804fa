"""The sidecar over a provider made for the test."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest

from backends.hosted.app import HostedApp
from tests.backends.hosted.conftest import Serve
from tests.conftest import until

_ASK = {"model": "g", "messages": [{"role": "user", "content": "a secret question"}]}


class Scripted:
    """Answers what it is told to; knows whether it was cancelled."""

    def __init__(self, answer: Any = None, error: Exception | None = None, wait: bool = False) -> None:
        self.answer = {"id": "1", "model": "theirs", "choices": []} if answer is None else answer
        self.error = error
        self.wait = wait
        self.asked: list[Mapping[str, Any]] = []
        self.cancelled = False
        self.closed = False

    async def chat(self, body: Mapping[str, Any]) -> Any:
        self.asked.append(body)
        if isinstance(self.answer, list):
            return self._stream()
        await self._end()
        return self.answer

    text = chat
    embed = chat

    def max_model_len(self) -> int | None:
        return 1234

    async def _stream(self) -> AsyncIterator[dict[str, Any]]:
        try:
            for chunk in self.answer:
                yield dict(chunk)
            await self._end()
        finally:
            self.closed = True

    async def _end(self) -> None:
        if self.wait:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
        if self.error is not None:
            raise self.error


class RefusedError(Exception):
    def __init__(self, status: int, message: str = "no", headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status_code = status
        self.message = message
        self.litellm_response_headers = {"date": "now"} if headers is None else headers


def chunk(text: str = "x", **more: Any) -> dict[str, Any]:
    choices = [{"index": 0, "delta": {"content": text}}]
    return {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "theirs", "choices": choices, **more}


_USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


async def post(url: str, body: Any, path: str = "/v1/chat/completions") -> httpx.Response:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        return await client.post(path, json=body)


async def test_answers_carry_the_name_the_client_used(serve: Serve) -> None:
    provider = Scripted()
    url = await serve(HostedApp(provider, model="g", aliases=("g@hosted",)))
    for name in ("g", "g@hosted"):
        response = await post(url, {**_ASK, "model": name})
        assert response.json() == {"id": "1", "model": name, "choices": []}
    assert (await post(url, {**_ASK, "model": ""})).json()["model"] == "g"
    refused = await post(url, {**_ASK, "model": "theirs"})
    assert refused.status_code == 404
    assert refused.json()["error"]["param"] == "model"
    assert len(provider.asked) == 3


async def test_models_health_and_what_is_not_there(serve: Serve) -> None:
    url = await serve(HostedApp(Scripted(), model="g", aliases=("g@v",)))
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        models = (await client.get("/v1/models")).json()["data"]
        assert [(model["id"], model["max_model_len"]) for model in models] == [("g", 1234), ("g@v", 1234)]
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/v1/nope")).status_code == 404
        assert (await client.get("/v1/chat/completions")).status_code == 405
        assert (await client.post("/health")).status_code == 405


@pytest.mark.parametrize("asked", [True, False])
async def test_usage_comes_last_and_only_where_asked_for(serve: Serve, asked: bool) -> None:
    provider = Scripted([chunk("a"), chunk("b", usage=_USAGE), chunk(choices=[], usage=_USAGE)])
    url = await serve(HostedApp(provider, model="g"))
    response = await post(url, {**_ASK, "stream": True, "stream_options": {"include_usage": asked}})
    events = response.text.split("\n\n")
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert all('"model":"g"' in event for event in events[:2])
    assert all('"finish_reason":null' in event for event in events[:2])
    assert events[-2:] == ["data: [DONE]", ""]
    assert [index for index, event in enumerate(events) if "usage" in event] == ([2] if asked else [])
    assert provider.closed


@pytest.mark.parametrize(
    ("error", "status", "retry"),
    [
        (RefusedError(429, headers={"retry-after": "7"}), 429, "7"),
        (RefusedError(503), 503, None),
        (RefusedError(400), 400, None),
        (RefusedError(401), 502, None),
        (RefusedError(403), 502, None),
        (RefusedError(500), 500, None),
        (RefusedError(500, headers={}), 502, None),
        (TimeoutError(), 504, None),
        (ValueError("strange"), 500, None),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_the_providers_failure_keeps_its_status(
    serve: Serve, error: Exception, status: int, retry: str | None, stream: bool
) -> None:
    provider = Scripted([] if stream else None, error)
    url = await serve(HostedApp(provider, model="g"))
    response = await post(url, {**_ASK, "stream": stream})
    assert response.status_code == status
    assert response.headers.get("retry-after") == retry
    assert response.json()["error"]["code"] == status


async def test_a_failure_after_the_first_chunk_is_an_event(serve: Serve) -> None:
    url = await serve(HostedApp(Scripted([chunk()], RefusedError(500)), model="g"))
    response = await post(url, {**_ASK, "stream": True})
    events = response.text.split("\n\n")
    assert response.status_code == 200
    assert events[1].startswith('data: {"error":{"message":"no","type":"InternalServerError"')
    assert events[2] == "data: [DONE]"


@pytest.mark.parametrize("answer", [None, [], [chunk()]])
async def test_a_client_that_leaves_cancels_the_call(serve: Serve, answer: Any) -> None:
    provider = Scripted(answer, wait=True)
    url = await serve(HostedApp(provider, model="g"))
    asking = asyncio.create_task(post(url, {**_ASK, "stream": answer is not None}))
    await until(lambda: bool(provider.asked))
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await until(lambda: provider.cancelled and (answer is None or provider.closed))


async def test_an_answer_that_takes_too_long_is_ended(serve: Serve) -> None:
    provider = Scripted(wait=True)
    url = await serve(HostedApp(provider, model="g", timeout_s=0.05))
    assert (await post(url, _ASK)).status_code == 504
    assert provider.cancelled


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"5", b"\xff", b'{"model": "g", "messages": NaN}'])
async def test_a_body_that_is_no_request_is_a_400(serve: Serve, content: bytes) -> None:
    url = await serve(HostedApp(Scripted(), model="g"))
    async with httpx.AsyncClient(timeout=60) as client:
        response = await client.post(f"{url}/v1/chat/completions", content=content)
    assert response.status_code == 400
    assert response.json()["error"]["message"]


async def test_a_body_that_is_too_large_is_a_413(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.hosted.app._MAX_BODY", 100)
    url = await serve(HostedApp(Scripted(), model="g"))
    assert (await post(url, {**_ASK, "more": "x" * 100})).status_code == 413


async def test_neither_prompts_nor_keys_are_logged_or_told(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    provider = Scripted(error=RefusedError(400, "key sk-abc may not ask 'a secret question'"))
    url = await serve(HostedApp(provider, model="g", secrets=("sk-abc",)))
    response = await post(url, _ASK)
    assert "sk-abc" not in response.text
    assert "***" in response.text
    ours = [record.getMessage() for record in caplog.records if record.name == "bitgear.hosted"]
    assert ours == ["/v1/chat/completions failed with RefusedError: status 400"]
    assert not any("secret question" in record.getMessage() for record in caplog.records)

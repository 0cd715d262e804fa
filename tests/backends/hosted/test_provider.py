"""The whole way: OpenAI's client, the sidecar, litellm, and a simulated server in the provider's place."""

from __future__ import annotations

import asyncio
import logging
from importlib.util import find_spec
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from backends.hosted.app import HostedApp
from backends.hosted.errors import HostedError
from backends.hosted.provider import LiteLlm
from backends.settings import HostedSettings, SimulatorSettings
from backends.simulator import Running, Simulator, serving
from tests.backends.hosted.conftest import Serve
from tests.conftest import until

# Looked for, not imported: that takes seconds, in every process that collects this module.
pytestmark = pytest.mark.skipif(find_spec("litellm") is None, reason="the extra `hosted`")

_USER = [{"role": "user", "content": "a secret question"}]
_KEY = "sk-very-secret-key"


@pytest.fixture
async def provider() -> Any:
    """A simulated server in the provider's place."""
    async with serving(Simulator(SimulatorSettings(time_scale=0.2), model="theirs", precision="fp16")) as running:
        yield running


async def client_of(serve: Serve, provider: Running, **settings: Any) -> AsyncOpenAI:
    hosted = HostedSettings(
        **{"target": "openai/theirs", "api_base": f"{provider.url}/v1", "api_key_env": "THEIR_KEY", **settings}
    )
    model = LiteLlm(hosted, {"THEIR_KEY": _KEY})
    app = HostedApp(model, model="g", timeout_s=hosted.timeout_s, secrets=model.secrets)
    return AsyncOpenAI(base_url=f"{await serve(app)}/v1", api_key="client", max_retries=0)


async def plant(provider: Running, **fault: Any) -> None:
    async with httpx.AsyncClient(timeout=60) as client:
        (await client.post(f"{provider.url}/sim/faults", json={"count": 1, **fault})).raise_for_status()


async def test_chat_plain_and_streamed(serve: Serve, provider: Running) -> None:
    ask = await client_of(serve, provider)
    plain = await ask.chat.completions.create(model="g", messages=_USER, seed=4, max_tokens=20)
    assert plain.model == "g"
    text = plain.choices[0].message.content
    assert text is not None
    assert text.startswith("[simulated fp16]")
    stream = await ask.chat.completions.create(
        model="g", messages=_USER, seed=4, max_tokens=20, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert {chunk.model for chunk in chunks} == {"g"}
    parts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert "".join(filter(None, parts)) == text
    assert len(parts) > 10
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert plain.usage is not None
    assert chunks[-1].usage.completion_tokens == plain.usage.completion_tokens == 20
    bare = await ask.chat.completions.create(model="g", messages=_USER, max_tokens=3, stream=True)
    assert all(chunk.usage is None for chunk in [chunk async for chunk in bare])
    await ask.close()


async def test_tools_completions_and_embeddings(serve: Serve, provider: Running) -> None:
    ask = await client_of(serve, provider)
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    called = await ask.chat.completions.create(model="g", messages=_USER, tools=[tool], tool_choice="required")
    (call,) = called.choices[0].message.tool_calls or ()
    assert (call.function.name, call.function.arguments) == ("f", "{}")
    text = await ask.completions.create(model="g", prompt="hi", max_tokens=5)
    assert text.choices[0].text.startswith("[simulated")
    stream = await ask.completions.create(model="g", prompt="hi", max_tokens=5, stream=True)
    assert "".join([chunk.choices[0].text or "" async for chunk in stream]) == text.choices[0].text
    vectors = await ask.embeddings.create(model="g", input=["a", "b"], dimensions=8)
    assert [len(item.embedding) for item in vectors.data] == [8, 8]
    assert vectors.model == "g"
    await ask.close()


async def test_the_clients_body_cannot_redirect_the_call_and_vllms_own_fields_stay_here(
    serve: Serve, provider: Running
) -> None:
    ask = await client_of(serve, provider)
    extra = {"api_base": "http://127.0.0.1:1/v1", "api_key": "x", "mock_response": "no", "min_tokens": 99, "top_k": 1}
    answer = await ask.chat.completions.create(model="g", messages=_USER, max_tokens=5, extra_body=extra)
    assert (answer.choices[0].message.content or "").startswith("[simulated")
    await ask.close()


async def test_errors_keep_status_retry_after_and_no_key(serve: Serve, provider: Running) -> None:
    ask = await client_of(serve, provider)
    await plant(provider, kind="status", status=429, retry_after=7)
    with pytest.raises(openai.RateLimitError) as limited:
        await ask.chat.completions.create(model="g", messages=_USER)
    assert limited.value.response.headers["retry-after"] == "7"
    with pytest.raises(openai.BadRequestError, match="temperature must be in"):
        await ask.chat.completions.create(model="g", messages=_USER, temperature=9)
    for fault, status in (
        ({"kind": "status", "status": 503}, 503),
        ({"kind": "status", "status": 500}, 500),
        ({"kind": "status", "status": 401}, 502),
        ({"kind": "drop"}, 502),
    ):
        await plant(provider, **fault)
        with pytest.raises(openai.InternalServerError) as failed:
            await ask.chat.completions.create(model="g", messages=_USER)
        assert failed.value.status_code == status
        assert _KEY not in str(failed.value)
    await ask.close()


async def test_a_provider_that_hangs_is_a_504(serve: Serve, provider: Running) -> None:
    ask = await client_of(serve, provider, timeout_s=0.5)
    await plant(provider, kind="hang")
    with pytest.raises(openai.InternalServerError) as failed:
        await ask.chat.completions.create(model="g", messages=_USER)
    assert failed.value.status_code == 504
    await ask.close()


@pytest.mark.parametrize("kind", ["error_event", "reset"])
async def test_a_stream_that_fails_in_its_middle_ends_with_an_error(serve: Serve, provider: Running, kind: str) -> None:
    ask = await client_of(serve, provider)
    await plant(provider, kind=kind, tokens=3)
    stream = await ask.chat.completions.create(model="g", messages=_USER, stream=True)
    text = ""

    async def read() -> None:
        nonlocal text
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""

    with pytest.raises(openai.APIError):
        await read()
    assert "[simulated".startswith(text)
    await ask.close()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_ends_the_providers_work(serve: Serve, provider: Running, stream: bool) -> None:
    ask = await client_of(serve, provider)
    engine = provider.simulator.core.engine
    # So slow that it is at work still; for a stream not so slow that its first chunk has to be waited for long.
    await plant(provider, kind="slow", factor=50 if stream else 1000, count=None)
    asking = asyncio.create_task(ask.chat.completions.create(model="g", messages=_USER, stream=stream))
    await until(lambda: bool(engine.running))
    if stream:
        await plant(provider, kind="slow", factor=20, count=None)
        async with asyncio.timeout(60):
            opened: Any = await asking
            await anext(aiter(opened))
        await opened.close()
    else:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    await until(lambda: engine.idle)
    assert provider.simulator.core.metrics.finished["abort"] == 1
    await ask.close()


async def test_litellm_logs_neither_prompts_nor_keys(
    serve: Serve, provider: Running, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    ask = await client_of(serve, provider)
    await ask.chat.completions.create(model="g", messages=_USER, max_tokens=3)
    await plant(provider, kind="status", status=500)
    with pytest.raises(openai.InternalServerError):
        await ask.chat.completions.create(model="g", messages=_USER)
    await ask.close()
    # the test's own client logs what it sends
    theirs = [record.getMessage() for record in caplog.records if not record.name.startswith("openai")]
    printed = capsys.readouterr()
    for text in (*theirs, printed.out, printed.err):
        assert "secret question" not in text
        assert _KEY not in text


def test_a_missing_key_is_named() -> None:
    with pytest.raises(HostedError, match="THEIR_KEY"):
        LiteLlm(HostedSettings(target="openai/x", api_key_env="THEIR_KEY"), {})


def test_the_context_length_is_litellms() -> None:
    assert LiteLlm(HostedSettings(target="openai/gpt-4o-mini"), {}).max_model_len() == 128_000
    assert LiteLlm(HostedSettings(target="openai/unheard-of"), {}).max_model_len() is None

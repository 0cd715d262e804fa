"""The operator's address: health, readiness, the variants' live state, and no secret."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.conftest import Bitgear, until
from tests.support.client import Answer, chat, fetch
from tests.support.upstream import ScriptedUpstream, Send, sends
from tests.support.wire import ChatWire, json_response, response

Start = Callable[..., Awaitable[Bitgear]]
WIRE = ChatWire("g")


@pytest.fixture
async def up() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream("g", max_model_len=777) as server:
        server.always([Send(json_response(WIRE.answer()))])
        yield server


async def get(gear: Bitgear, path: str) -> Answer:
    return await fetch(gear.admin_url, path)


async def test_alive_is_not_ready(bitgear: Start, up: ScriptedUpstream) -> None:
    up.probe_answer = lambda _: [Send(json_response(b"{}", 500))]
    gear = await bitgear({"fp16": up.url}, wait=False)
    assert (await get(gear, "/healthz")).json() == {"status": "ok"}
    not_yet = await get(gear, "/readyz")
    assert (not_yet.status, not_yet.json()) == (503, {"ready": False, "groups_without_variant": ["g"]})
    up.probe_answer = None
    await until(lambda: gear.worker.fleet.variants()[0].replicas[0].ready)
    ready = await get(gear, "/readyz")
    assert (ready.status, ready.json()) == (200, {"ready": True, "groups_without_variant": []})


async def test_variants_show_their_live_state(bitgear: Start, up: ScriptedUpstream) -> None:
    up.reported_running, up.reported_waiting, up.kv_usage = 4, 2, 0.5
    gear = await bitgear({"fp16": up.url, "int8": up.url})
    up.always(sends(response(WIRE.stream(["a"] * 20, 5, usage=True))))
    for model in ("g@int8", "g@int8"):
        assert (await fetch(gear.url, "/v1/chat/completions", chat(model=model, stream=True))).status == 200
    await until(lambda: all(r.metrics for v in gear.worker.fleet.variants() for r in v.replicas))
    full, int8 = (await get(gear, "/admin/variants")).json()
    assert (full["group"], full["variant"], full["precision"], full["ready"]) == ("g", "fp16", "fp16", True)
    assert full["threshold"] is None
    assert 0 <= int8["threshold"] <= 1
    assert (int8["requests_60s"], int8["tokens_per_s_10s"]) == (2, 4.0)
    assert int8["ttft_ms"] is not None
    assert int8["max_model_len"] == 777
    (replica,) = int8["replicas"]
    assert replica["url"] == up.url
    assert (replica["ready"], replica["available"], replica["breaker"]) == (True, True, "closed")
    assert (replica["running"], replica["waiting"], replica["kv_cache_usage"]) == (4.0, 2.0, 0.5)
    assert (replica["requests"], replica["failures"], replica["inflight"]) == (2, 0, 0)
    assert replica["last_error"] is None


async def test_status_tells_what_was_done_in_each_window(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    idle = (await get(gear, "/admin/status")).json()["windows"]
    assert [(w["window"], w["requests_per_s"]) for w in idle] == [("10s", 0.0), ("1m", 0.0), ("5m", 0.0)]
    for scenario in ("batch", "realtime"):
        await fetch(gear.url, "/v1/chat/completions", chat(model="g"), [("x-bitgear-scenario", scenario)])
    await until(lambda: gear.worker.app.inflight == 0)
    longest = (await get(gear, "/admin/status")).json()["windows"][2]
    # Both scenarios together.
    assert longest["requests_per_s"] == round(2 / 300, 4)
    assert longest["completion_tokens_per_s"] > 0


async def test_a_replica_that_is_out_says_why(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    await up.stop()
    await until(lambda: not gear.worker.fleet.variants()[0].replicas[0].ready)
    status = (await get(gear, "/admin/status")).json()
    assert status["ready"] is False
    (replica,) = status["variants"][0]["replicas"]
    assert replica["breaker"] == "open"
    assert "no connection" in replica["last_error"]


async def test_status_tells_version_and_the_event_sink(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url}, config={"policy_version": "v42"})
    status = (await get(gear, "/admin/status")).json()
    assert (status["ready"], status["policy_version"], status["redis"]) == (True, "v42", "off")
    assert status["uptime_s"] >= 0
    assert (await get(gear, "/admin/events")).json()["dropped"] == 0


async def test_no_page_shows_a_secret(bitgear: Start, up: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SERVER_KEY", "own-secret")
    url = up.url.replace("http://", "http://user:own-secret@")
    gear = await bitgear({"fp16": url}, variant={"api_key_env": "TEST_SERVER_KEY"})
    await fetch(gear.url, "/v1/chat/completions", chat("client-secret", model="g"))
    for path in ("/admin/status", "/admin/variants", "/admin/config", "/admin/events", "/metrics", "/readyz"):
        page = await get(gear, path)
        assert page.status == 200
        assert b"own-secret" not in page.body
        assert b"client-secret" not in page.body


async def test_passwords_within_the_configuration_are_hidden(bitgear: Start, up: ScriptedUpstream) -> None:
    backend = {
        "precision": "fp16",
        "urls": ["http://127.0.0.1:1"],
        "vllm": {"env": {"HF_TOKEN": "own-secret"}},
    }
    config = {"redis": {"url": "redis://user:own-secret@127.0.0.1:1"}, "groups": {"g": {"backends": [backend]}}}
    gear = await bitgear({"fp16": up.url}, config=config)
    config = await get(gear, "/admin/config")
    assert config.status == 200
    assert b"own-secret" not in config.body


async def test_the_api_describes_itself(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    described = (await get(gear, "/openapi.json")).json()
    assert set(described["paths"]) >= {"/healthz", "/readyz", "/metrics", "/admin/status", "/admin/variants"}
    for path, methods in described["paths"].items():
        for method in methods.values():
            assert method["summary"], path
    assert (await get(gear, "/docs")).status == 200
    assert (await get(gear, "/nothing")).status == 404


async def test_the_operators_pages_are_not_on_the_applications_address(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    for path in ("/metrics", "/admin/status", "/admin/config", "/docs", "/openapi.json"):
        assert (await fetch(gear.url, path)).status == 404

"""API keys through the admin API, and what they do on the applications' address."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import openai
import pytest
from redis.asyncio import Redis

from tests.conftest import Bitgear
from tests.router.admin.conftest import Operator
from tests.support.client import RawClient, chat, fetch
from tests.support.upstream import ScriptedUpstream, Send, Wait
from tests.support.wire import ChatWire, response


async def ask(operator: Operator, key: str | None, model: str = "g") -> int:
    headers = [("authorization", f"Bearer {key}")] if key else []
    return (await fetch(operator.gear.url, "/v1/chat/completions", chat(model=model), headers)).status


async def test_keys_are_made_used_disabled_and_revoked(operator: Operator, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    assert await ask(operator, None) == 200
    made = await operator("POST", "/admin/keys", {"name": "app", "tenant": "ann", "max_concurrent": 5})
    assert made.status_code == 201
    key = made.json()["key"]
    assert (await operator("POST", "/admin/keys", {"name": "app"})).status_code == 409
    assert (await ask(operator, None), await ask(operator, "sk-other"), await ask(operator, key)) == (401, 401, 200)
    assert (await fetch(operator.gear.url, "/v1/models")).status == 401
    assert (await fetch(operator.gear.url, "/health")).status == 200
    listed = await operator("GET", "/admin/keys")
    assert [(k["name"], k["tenant"], k["source"]) for k in listed.json()] == [("app", "ann", "api")]
    assert (await operator("PATCH", "/admin/keys/app", {"disabled": True})).json()["disabled"] is True
    assert await ask(operator, key) == 403
    await operator("PATCH", "/admin/keys/app", {"disabled": False})
    assert await ask(operator, key) == 200
    assert (await operator("DELETE", "/admin/keys/app")).status_code == 200
    # Without any key left nobody is served: revoking the last one must not open the door.
    assert (await ask(operator, key), await ask(operator, None)) == (401, 401)
    # Going back to an older version does not bring a revoked key back.
    await operator("POST", "/admin/rollback", {"version": 1})
    assert await ask(operator, key) == 401
    assert (await operator("DELETE", "/admin/keys")).status_code == 200
    assert await ask(operator, None) == 200
    pages = [
        listed.text,
        (await operator("GET", "/admin/audit")).text,
        (await operator("GET", "/admin/versions/1")).text,
    ]
    assert not any(key in text for text in [*pages, caplog.text])


async def test_a_key_limits_groups_and_rate_in_openais_words(operator: Operator) -> None:
    body = {"name": "slow", "groups": ["g"], "requests_per_minute": 6}
    key = (await operator("POST", "/admin/keys", body)).json()["key"]
    client = openai.AsyncOpenAI(base_url=operator.gear.url + "/v1", api_key=key, max_retries=0)
    assert [m.id for m in (await client.models.list()).data] == ["g", "g@fp16"]
    with pytest.raises(openai.RateLimitError) as caught:
        await client.models.list()
    assert 1 <= int(caught.value.response.headers["retry-after"]) <= 10
    wrong = openai.AsyncOpenAI(base_url=operator.gear.url + "/v1", api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        await wrong.models.list()
    other = (await operator("POST", "/admin/keys", {"name": "other", "groups": ["h"]})).json()["key"]
    assert await ask(operator, other) == 403
    await client.close()
    await wrong.close()


async def test_limits_are_shown_and_changed(operator: Operator) -> None:
    limits = {"requests_per_minute": 600, "tokens_per_minute": 6, "max_concurrent": 9}
    key = (await operator("POST", "/admin/keys", {"name": "app", **limits})).json()["key"]

    async def shown() -> tuple[float | None, ...]:
        (one,) = (await operator("GET", "/admin/keys")).json()
        return tuple(one[name] for name in limits)

    assert await shown() == (600, 6, 9)
    assert (await ask(operator, key), await ask(operator, key)) == (200, 429)
    # What is not named stays.
    changed = await operator("PATCH", "/admin/keys/app", {"tokens_per_minute": 10**9, "max_concurrent": None})
    assert (changed.json()["tokens_per_minute"], await shown()) == (10**9, (600, 10**9, None))
    async with asyncio.timeout(60):
        while await ask(operator, key) != 200:
            await asyncio.sleep(0.02)
    await operator("PATCH", "/admin/keys/app", {"disabled": True})
    assert (await ask(operator, key), await shown()) == (403, (600, 10**9, None))
    reasons = [a["reason"] for a in (await operator("GET", "/admin/audit")).json()]
    assert reasons[:2] == ["key app: disabled", "key app: tokens_per_minute 1000000000, max_concurrent no limit"]
    for wrong in ({}, {"disabled": None}, {"tokens_per_minute": 0}, {"requests_per_minute": 0}, {"name": "b"}):
        assert (await operator("PATCH", "/admin/keys/app", wrong)).status_code == 422


async def test_a_scenario_is_the_headers_then_the_keys_then_the_groups(operator: Operator) -> None:
    key = (await operator("POST", "/admin/keys", {"name": "app", "scenario": "batch"})).json()["key"]
    plain = (await operator("POST", "/admin/keys", {"name": "plain"})).json()["key"]
    config = (await operator("GET", "/admin/config")).json()
    config["groups"]["g"]["scenario"] = "edge"
    assert (await operator("PUT", "/admin/config", config, if_match="*")).status_code == 200

    async def scenario(who: str, *more: tuple[str, str]) -> str:
        headers = [("authorization", f"Bearer {who}"), *more]
        answer = await fetch(operator.gear.url, "/v1/route", chat(model="g"), headers)
        return str(answer.json()["decision"]["scenario"])

    assert await scenario(key, ("x-bitgear-scenario", "realtime")) == "realtime"
    assert await scenario(key) == "batch"
    assert await scenario(plain) == "edge"
    assert await scenario(plain, ("x-bitgear-scenario", "batch")) == "batch"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": ""},
        {"name": "a b"},
        {"name": "a", "requests_per_minute": 0},
        {"name": "a", "x": 1},
        {"name": "a", "tokens_per_minute": 0.5},
    ],
)
async def test_a_wrong_order_is_422(operator: Operator, body: dict[str, object]) -> None:
    assert (await operator("POST", "/admin/keys", body)).status_code == 422


async def test_a_stream_goes_on_when_its_key_is_revoked_and_is_the_last(
    operator: Operator, up: ScriptedUpstream
) -> None:
    key = (await operator("POST", "/admin/keys", {"name": "app"})).json()["key"]
    pieces = response(ChatWire("g").stream(["one", "two", "three"]))
    half, rest = b"".join(pieces[:3]), b"".join(pieces[3:])
    go_on = asyncio.Event()
    up.always([Send(half), Wait(go_on), Send(rest)])
    async with RawClient(operator.gear.url) as client:
        headers = [("authorization", f"Bearer {key}")]
        await client.request("POST", "/v1/chat/completions", chat(model="g", stream=True), headers)
        answer = await client.read_until(lambda body: b"one" in body)
        assert (await operator("DELETE", "/admin/keys/app")).status_code == 200
        assert await ask(operator, key) == 401
        go_on.set()
        async for _ in client.pieces(answer):
            pass
    assert answer.complete
    assert answer.events()[-1] == b"[DONE]"
    assert b"three" in answer.body


@pytest.mark.parametrize("other", [[("authorization", "Bearer sk-made-up")], [("x-api-key", "sk-made-up")]])
async def test_one_key_is_one_tenant_whatever_else_it_sends(
    operator: Operator, redis_url: str, other: list[tuple[str, str]]
) -> None:
    key = (await operator("POST", "/admin/keys", {"name": "app"})).json()["key"]
    own = [("authorization", f"Bearer {key}")]
    if other[0][0] == "x-api-key":
        # A scheme that is no key's: the key is looked for in `x-api-key`.
        own, other = [("x-api-key", key)], [("authorization", "Basic bWFkZTp1cA==")]
    for headers in (own, own + other, [*own, *own, *other]):
        answer = await fetch(operator.gear.url, "/v1/chat/completions", chat(model="g"), headers)
        assert answer.status == 200
    async with asyncio.timeout(60), Redis.from_url(redis_url) as client:
        while len(events := await client.xrange("bitgear:events")) < 3:
            await asyncio.sleep(0.02)
    assert len({json.loads(fields[b"event"])["tenant"] for _, fields in events}) == 1


async def test_without_any_key_nobody_is_served_where_one_is_required(
    bitgear: Callable[..., Awaitable[Bitgear]], up: ScriptedUpstream, tmp_path: Path
) -> None:
    # Redis, which would know the keys, is away, and there is no copy of them.
    gear = await bitgear(
        {"fp16": up.url}, config={"server": {"require_key": True}}, redis_url=f"unix://{tmp_path}/none.sock"
    )
    asked = await fetch(gear.url, "/v1/chat/completions", chat(model="g"))
    assert (asked.status, asked.json()["error"]["code"]) == (401, "missing_api_key")
    given = [("authorization", "Bearer sk-any")]
    asked = await fetch(gear.url, "/v1/chat/completions", chat(model="g"), given)
    assert (asked.status, asked.json()["error"]["code"]) == (401, "invalid_api_key")
    assert (await fetch(gear.url, "/health")).status == 200

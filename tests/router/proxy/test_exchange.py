"""One request's way over replicas: who takes over from whom, and what the client and the replicas are told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from email.utils import formatdate
from typing import Any

import pytest

from backends.wire import Pool, UpstreamError
from router.state import Replica
from tests.conftest import Bitgear, until
from tests.support.client import Answer, RawClient, chat, fetch
from tests.support.upstream import Close, Hang, Reset, ScriptedUpstream, Send, Step
from tests.support.wire import ChatWire, chunk, error_body, json_response, response_head

Start = Callable[..., Awaitable[Bitgear]]
WIRE = ChatWire("g")
PATH = "/v1/chat/completions"
GOOD: list[Step] = [Send(json_response(WIRE.answer()))]
TOO_LONG = error_body(
    "This model's maximum context length is 512 tokens. However, your prompt contains at least 513 input tokens.",
    param="input_tokens",
)
LOWEST_FIRST = {
    "thresholds": {"int8": 1.0, "int4": 1.0},
    "scenarios": {"realtime": {"prefer": "lowest_precision", "ttft_ms": None, "e2e_ms": None}},
}


@pytest.fixture
async def ups() -> AsyncIterator[list[ScriptedUpstream]]:
    async with AsyncExitStack() as stack:
        found = [await stack.enter_async_context(ScriptedUpstream("g")) for _ in range(3)]
        for up in found:
            up.always(GOOD)
        yield found


def overloaded(status: int, retry_after: str | None) -> list[Step]:
    headers = [("retry-after", retry_after)] if retry_after is not None else []
    return [Send(json_response(error_body("busy", "x", None, status), status, headers))]


def replicas(gear: Bitgear) -> list[Replica]:
    return [r for v in gear.worker.fleet.variants() for r in v.replicas]


async def ask(gear: Bitgear, headers: list[tuple[str, str]] | None = None, **more: Any) -> Answer:
    return await fetch(gear.url, PATH, chat(**{"model": "g", **more}), headers or [])


def pause(replica: Replica) -> float:
    return replica.cool_until - asyncio.get_running_loop().time()


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.timing
async def test_case_18_an_overloaded_replica_is_left_alone_and_another_takes_over_at_once(
    bitgear: Start, ups: list[ScriptedUpstream], status: int, stream: bool
) -> None:
    gear = await bitgear({"fp16": [ups[0].url, ups[1].url]}, config={"balancer": "round_robin"})
    ups[0].always(overloaded(status, "30"))
    began = time.monotonic()
    for _ in range(6):
        assert (await ask(gear, stream=stream)).status == 200
    assert time.monotonic() - began < 3
    assert len(ups[0].exchanges) == 1
    assert 25 < pause(replicas(gear)[0]) <= 30
    assert replicas(gear)[0].ready
    assert replicas(gear)[0].failures == 0


async def test_case_18_after_its_pause_it_is_asked_again(bitgear: Start, ups: list[ScriptedUpstream]) -> None:
    gear = await bitgear({"fp16": [ups[0].url, ups[1].url]}, config={"balancer": "round_robin"})
    ups[0].enqueue(overloaded(429, "0.2"))
    for _ in range(2):
        assert (await ask(gear)).status == 200
    await until(lambda: pause(replicas(gear)[0]) < 0)
    for _ in range(4):
        assert (await ask(gear)).status == 200
    assert len(ups[0].exchanges) >= 3


async def test_case_18_retry_after_may_be_a_date(bitgear: Start, ups: list[ScriptedUpstream]) -> None:
    gear = await bitgear({"fp16": ups[0].url})
    ups[0].enqueue(overloaded(503, formatdate(time.time() + 60, usegmt=True)))
    answer = await ask(gear)
    assert answer.status == 503
    assert 55 < pause(replicas(gear)[0]) <= 61
    assert 55 <= int(answer.head.get("retry-after") or 0) <= 61


async def test_case_18_another_variant_takes_over(bitgear: Start, ups: list[ScriptedUpstream]) -> None:
    gear = await bitgear({"fp16": ups[0].url, "int4": ups[1].url}, config=LOWEST_FIRST)
    ups[1].always(overloaded(429, "30"))
    answer = await ask(gear)
    assert answer.status == 200
    assert "variant=fp16" in (answer.head.get("x-bitgear-decision") or "")
    assert len(ups[1].exchanges) == 1


@pytest.mark.parametrize("refusal", [json_response(TOO_LONG, 400), json_response(error_body("x"), 422)])
async def test_prompts_that_a_replica_refused_are_not_taken_to_be_ahead_of_others(
    bitgear: Start, ups: list[ScriptedUpstream], refusal: bytes
) -> None:
    gear = await bitgear({"fp16": ups[0].url})
    replica = replicas(gear)[0]
    for size in range(100, 2000, 100):
        replica.estimator.observe_prefill(size, 0.01 + size * 1e-3)
    ups[0].always([Send(refusal)])
    for _ in range(3):
        assert (await ask(gear, messages=[{"role": "user", "content": "word " * 50_000}])).status in (400, 422)
    now = asyncio.get_running_loop().time()
    assert replica.inflight == 0
    assert replica.prompts.backlog(now, replica.estimator.per_token_s) == 0.0
    assert replica.prompts.rate(now) < 1.0


async def test_an_answer_shows_that_the_prompts_before_it_are_computed(
    bitgear: Start, ups: list[ScriptedUpstream]
) -> None:
    gear = await bitgear({"fp16": ups[0].url})
    replica = replicas(gear)[0]
    for size in range(100, 2000, 100):
        # So slow that whatever was sent would be taken to wait for minutes.
        replica.estimator.observe_prefill(size, size * 0.1)
    per_token = replica.estimator.per_token_s
    for _ in range(3):
        assert (await ask(gear, messages=[{"role": "user", "content": "word " * 5_000}])).status == 200
    now = asyncio.get_running_loop().time()
    assert replica.prompts.rate(now) > 100.0
    assert replica.prompts.backlog(now, per_token) == 0.0


@pytest.mark.parametrize("status", [429, 503])
async def test_case_18_when_all_are_out_the_client_gets_the_smallest_retry_after(
    bitgear: Start, ups: list[ScriptedUpstream], status: int
) -> None:
    gear = await bitgear({"fp16": [ups[0].url, ups[1].url], "int4": ups[2].url})
    for up, seconds in zip(ups, ("40", "20", "60"), strict=True):
        up.always(overloaded(status, seconds))
    answer = await ask(gear)
    assert answer.status == status
    assert answer.head.get("retry-after") == "20"
    assert answer.json()["error"]["code"] in ("rate_limit_exceeded", "overloaded")
    assert [len(up.exchanges) for up in ups] == [1, 1, 1]
    again = await ask(gear)
    assert again.status in (429, 503)
    assert 18 <= int(again.head.get("retry-after") or 0) <= 20
    assert [len(up.exchanges) for up in ups] == [1, 1, 1]


async def test_case_18_a_pinned_request_waits_for_its_own_variant_only(
    bitgear: Start, ups: list[ScriptedUpstream]
) -> None:
    gear = await bitgear({"fp16": ups[0].url, "int4": ups[1].url})
    ups[1].always(overloaded(429, "30"))
    answer = await ask(gear, model="g@int4")
    assert answer.status == 429
    assert answer.head.get("retry-after") == "30"
    assert ups[0].exchanges == []


@pytest.mark.parametrize(
    "broken", [[Send(json_response(b"{}", 500))], [Close()], [Reset()], [Send(b"no http\r\n\r\n")]]
)
async def test_a_hard_failure_is_retried_elsewhere_once_and_no_more(
    bitgear: Start, ups: list[ScriptedUpstream], broken: list[Step]
) -> None:
    gear = await bitgear({"fp16": [up.url for up in ups]})
    for up in ups:
        up.always(broken)
    answer = await ask(gear)
    assert answer.status == 502
    assert answer.json()["error"]["code"] == "upstream_error"
    # A kept connection that closes unanswered is tried again on a fresh one.
    most = 2 if isinstance(broken[0], Send) else 4
    assert sum(len(up.exchanges) for up in ups) <= most
    assert sum(bool(up.exchanges) for up in ups) == 2
    for up in ups[1:]:
        up.always(GOOD)
    assert (await ask(gear)).status == 200


async def test_our_own_key_refused_by_a_server_is_no_error_of_the_client(
    bitgear: Start, ups: list[ScriptedUpstream]
) -> None:
    gear = await bitgear({"fp16": [ups[0].url, ups[1].url]})
    ups[0].always([Send(json_response(error_body("bad key sk-own"), 401))])
    assert (await ask(gear)).status == 200
    ups[1].always([Send(json_response(error_body("bad key sk-own"), 403))])
    answer = await ask(gear)
    assert (answer.status, answer.json()["error"]["code"]) == (502, "upstream_auth")
    assert b"sk-own" not in answer.body


async def test_a_kept_connection_found_closed_costs_nothing(bitgear: Start, ups: list[ScriptedUpstream]) -> None:
    gear = await bitgear({"fp16": ups[0].url}, config={"health": {"metrics_interval_s": 60}})
    assert (await ask(gear)).status == 200
    ups[0].enqueue([Close()])
    assert (await ask(gear)).status == 200
    assert len(ups[0].exchanges) == 3
    assert replicas(gear)[0].failures == 0


async def test_a_request_too_long_for_one_variant_goes_to_the_longer(
    bitgear: Start, ups: list[ScriptedUpstream]
) -> None:
    ups[1].max_model_len = 512
    gear = await bitgear({"fp16": ups[0].url, "int4": ups[1].url}, config=LOWEST_FIRST)
    ups[1].always([Send(json_response(TOO_LONG, 400))])
    answer = await ask(gear)
    assert answer.status == 200
    assert [len(up.exchanges) for up in ups] == [1, 1, 0]
    assert replicas(gear)[1].failures == 0


async def test_a_request_that_certainly_does_not_fit_is_not_even_tried(
    bitgear: Start, ups: list[ScriptedUpstream]
) -> None:
    ups[1].max_model_len = 512
    gear = await bitgear({"fp16": ups[0].url, "int4": ups[1].url}, config=LOWEST_FIRST)
    assert (await ask(gear, text="x" * 9000)).status == 200
    assert (await ask(gear, max_tokens=513)).status == 200
    assert [len(up.exchanges) for up in ups] == [2, 0, 0]


@pytest.mark.parametrize("model", ["g", "g@int4"])
async def test_a_request_too_long_for_all_gets_vllms_own_400_untouched(
    bitgear: Start, ups: list[ScriptedUpstream], model: str
) -> None:
    ups[1].max_model_len = 512
    gear = await bitgear({"fp16": ups[0].url, "int4": ups[1].url}, config=LOWEST_FIRST)
    for up in ups:
        up.always([Send(json_response(TOO_LONG, 400))])
    answer = await ask(gear, model=model)
    assert answer.status == 400
    assert answer.body == TOO_LONG
    assert answer.head.get("content-type") == "application/json"
    assert answer.head.get("x-request-id")
    assert [len(up.exchanges) for up in ups] == ([1, 1, 0] if model == "g" else [0, 1, 0])
    assert all(r.ready and r.failures == 0 for r in replicas(gear))


async def test_the_clients_own_error_is_passed_untouched_and_never_retried(
    bitgear: Start, ups: list[ScriptedUpstream]
) -> None:
    gear = await bitgear({"fp16": [ups[0].url, ups[1].url]})
    body = b'{ "error": {"message":"temperature must be non-negative", "code":400 } }\n'
    for up in ups:
        up.always([Send(json_response(body, 400))])
    for _ in range(5):
        answer = await ask(gear)
        assert (answer.status, answer.body) == (400, body)
    assert sum(len(up.exchanges) for up in ups) == 5
    assert all(r.ready and r.failures == 0 for r in replicas(gear))


async def test_the_clients_credentials_stay_here_and_the_servers_own_key_goes(
    bitgear: Start, ups: list[ScriptedUpstream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_SERVER_KEY", "own-key")
    gear = await bitgear({"fp16": ups[0].url}, variant={"api_key_env": "TEST_SERVER_KEY"})
    secrets = [("authorization", "Bearer client-key"), ("x-api-key", "client-key"), ("cookie", "a=client-key")]
    answer = await ask(gear, [*secrets, ("x-request-id", "abc-1")])
    exchange = ups[0].exchanges[0]
    assert b"client-key" not in exchange.head
    assert exchange.header("authorization") == "Bearer own-key"
    assert exchange.header("x-request-id") == "abc-1"
    assert answer.head.get("x-request-id") == "abc-1"
    assert b"own-key" not in answer.head.raw
    assert {e.header("authorization") for e in ups[0].side} == {"Bearer own-key"}


async def test_small_pieces_leave_at_once_on_both_sides(bitgear: Start, ups: list[ScriptedUpstream]) -> None:
    gear = await bitgear({"fp16": ups[0].url})
    ups[0].always([Hang()])
    async with RawClient(gear.url) as client:
        await client.request("POST", PATH, chat(model="g"))
        await ups[0].exchange()
        server: Any = gear.worker._servers[0]
        down = [c.transport.get_extra_info("socket") for c in server.server_state.connections]
        assert len(down) == 1
        assert down[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    pool = replicas(gear)[0].pool
    up = await pool.connect(1)
    assert up.transport is not None
    assert up.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    up.abort()


MIB = 1024 * 1024
LARGE_HEAD = Send(response_head(content_type="application/json", framing="length", length=8 * MIB))


async def test_a_large_answer_that_breaks_off_is_neither_retried_nor_taken_for_whole(
    bitgear: Start, ups: list[ScriptedUpstream]
) -> None:
    gear = await bitgear({"fp16": [ups[0].url, ups[1].url]})
    for up in ups:
        up.always([LARGE_HEAD, *[Send(b"x" * MIB)] * 6, Close()])
    async with RawClient(gear.url) as client:
        await client.request("POST", PATH, chat(model="g"))
        with contextlib.suppress(ConnectionResetError):
            answer = await client.answer()
            assert not answer.complete
            assert len(answer.body) <= 6 * MIB
    assert sum(len(up.exchanges) for up in ups) == 1
    assert sum(r.failures for r in replicas(gear)) == 1


async def test_a_client_that_leaves_a_large_answer_is_not_held_against_the_replica(
    bitgear: Start, ups: list[ScriptedUpstream]
) -> None:
    gear = await bitgear({"fp16": ups[0].url})
    ups[0].always([LARGE_HEAD, *[Send(b"x" * MIB)] * 5, Hang()])
    for _ in range(4):
        async with RawClient(gear.url) as client:
            await client.request("POST", PATH, chat(model="g"))
            await client.head()
    await until(lambda: gear.worker.app.inflight == 0 and ups[0].running == 0)
    assert replicas(gear)[0].failures == 0
    assert replicas(gear)[0].ready


async def test_an_answer_that_outlasts_the_total_limit_is_not_held_against_the_replica(
    bitgear: Start, ups: list[ScriptedUpstream]
) -> None:
    gear = await bitgear({"fp16": ups[0].url}, config={"timeouts": {"total_s": 0.2}, "breaker": {"failures": 1}})
    ups[0].always([Send(response_head()), Send(chunk(WIRE.role() + WIRE.content("a"))), Hang()])
    answer = await ask(gear, stream=True)
    assert b"total_timeout" in answer.body
    assert replicas(gear)[0].ready


async def test_head_passes_through_and_ends(bitgear: Start, ups: list[ScriptedUpstream]) -> None:
    gear = await bitgear({"fp16": ups[0].url})
    async with RawClient(gear.url) as client:
        await client.request("HEAD", "/v1/anything?model=g@fp16")
        assert (await client.head(timeout=5)).status == 404
    assert [e.target for e in ups[0].side if e.method == "HEAD"] == ["/v1/anything?model=g@fp16"]


async def test_an_unknown_path_of_a_pinned_variant_passes_with_its_query(
    bitgear: Start, ups: list[ScriptedUpstream]
) -> None:
    gear = await bitgear({"fp16": ups[0].url})
    body = {"model": "g@fp16", "x": 1}
    answer = await fetch(gear.url, "/v1/score?a=1&b=%20", body)
    assert answer.status == 200
    exchange = ups[0].exchanges[0]
    assert (exchange.method, exchange.target, exchange.json()) == (
        "POST",
        "/v1/score?a=1&b=%20",
        {**body, "model": "g"},
    )
    refused = await fetch(gear.url, "/v1/score", {"model": "g"})
    assert (refused.status, refused.json()["error"]["param"]) == (404, "model")


async def test_a_pinned_variant_above_the_bound_on_risk_is_400_and_not_tried_again(
    bitgear: Start, ups: list[ScriptedUpstream]
) -> None:
    gear = await bitgear({"fp16": ups[0].url, "int4": ups[1].url}, config=LOWEST_FIRST)
    answer = await ask(gear, [("x-bitgear-max-risk", "0"), ("x-bitgear-precision", "int4")])
    error = answer.json()["error"]
    assert (answer.status, error["code"], error["param"]) == (400, "max_risk_unavailable", "x-bitgear-max-risk")
    assert answer.head.get("retry-after") is None
    assert ups[1].exchanges == []


async def test_a_bound_on_risk_that_no_live_variant_keeps_is_503(bitgear: Start, ups: list[ScriptedUpstream]) -> None:
    gear = await bitgear({"fp16": ups[0].url, "int4": ups[1].url}, config=LOWEST_FIRST)
    bound = [("x-bitgear-max-risk", "0")]
    assert "variant=fp16" in ((await ask(gear, bound)).head.get("x-bitgear-decision") or "")
    await ups[0].stop()
    await until(lambda: not replicas(gear)[0].ready)
    answer = await ask(gear, bound)
    assert (answer.status, answer.json()["error"]["code"]) == (503, "max_risk_unavailable")
    assert int(answer.head.get("retry-after") or 0) >= 1
    assert ups[1].exchanges == []
    assert (await ask(gear)).status == 200


async def test_embeddings_stay_at_full_precision(bitgear: Start, ups: list[ScriptedUpstream]) -> None:
    gear = await bitgear({"fp16": ups[0].url, "int4": ups[1].url}, config=LOWEST_FIRST)
    for _ in range(3):
        answer = await fetch(gear.url, "/v1/embeddings", {"model": "g", "input": "x"})
        assert "reason=full_precision" in (answer.head.get("x-bitgear-decision") or "")
    assert [len(up.exchanges) for up in ups] == [3, 0, 0]


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": "hi"}]},
        {"prompt": "hi"},
        {"input": "hi"},
    ],
)
async def test_route_explains_without_sending(
    bitgear: Start, ups: list[ScriptedUpstream], body: dict[str, Any]
) -> None:
    gear = await bitgear({"fp16": ups[0].url, "int4": ups[1].url})
    answer = await fetch(gear.url, "/v1/route", {"model": "g", **body}, [("x-bitgear-scenario", "batch")])
    told = answer.json()["decision"]
    assert answer.status == 200
    assert told["scenario"] == "batch"
    assert [c["variant"] for c in told["candidates"]] == ["fp16", "int4"]
    assert {"risk", "threshold", "live", "allowed", "in_time", "fits", "ttft_ms", "e2e_ms", "cost"} <= set(
        told["candidates"][0]
    )
    assert all(up.exchanges == [] for up in ups)
    json.dumps(told, allow_nan=False)


async def test_embeddings_wait_for_full_precision_rather_than_take_another(
    bitgear: Start, ups: list[ScriptedUpstream]
) -> None:
    ups[0].always([Send(json_response(error_body("no", "x", None, 500), 500))])
    gear = await bitgear({"fp16": ups[0].url, "int4": ups[1].url}, config=LOWEST_FIRST)
    assert (await fetch(gear.url, "/v1/embeddings", {"model": "g", "input": "x"})).status == 502
    assert ups[1].exchanges == []
    assert (await fetch(gear.url, "/v1/embeddings", {"model": "g@int4", "input": "x"})).status == 200


async def test_many_prompts_of_one_request_are_not_taken_for_one_long_prompt(
    bitgear: Start, ups: list[ScriptedUpstream]
) -> None:
    gear = await bitgear({"fp16": ups[0].url, "int4": ups[1].url}, config={"thresholds": {"int4": 0.0}})
    body = {"model": "g", "prompt": ["word " * 400] * 100}
    told = (await fetch(gear.url, "/v1/route", body, [("x-bitgear-scenario", "batch")])).json()["decision"]
    assert (told["variant"], told["reason"]) == ("fp16", "within_limits")


async def test_a_lack_of_this_machine_is_no_failure_of_a_replica(
    bitgear: Start, ups: list[ScriptedUpstream], monkeypatch: pytest.MonkeyPatch
) -> None:
    gear = await bitgear({"fp16": [ups[0].url, ups[1].url]}, config={"breaker": {"failures": 1, "open_s": 60}})

    async def connect(pool: Pool, timeout_s: float) -> None:
        raise UpstreamError("connect", "too many open files", own=True)

    with monkeypatch.context() as lacking:
        lacking.setattr(Pool, "connect", connect)
        lacking.setattr(Pool, "reusable", lambda pool: None)
        answer = await ask(gear)
    assert answer.status == 503
    assert answer.json()["error"]["code"] == "overloaded"
    assert answer.head.get("retry-after") == "1"
    assert (await ask(gear)).status == 200

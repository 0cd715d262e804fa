"""Figures that Prometheus can read, exact, and bounded whatever clients send."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import Bitgear, until
from tests.support.client import chat, fetch
from tests.support.upstream import ScriptedUpstream, Send, sends
from tests.support.wire import ChatWire, json_response, response

Start = Callable[..., Awaitable[Bitgear]]
WIRE = ChatWire("g")
Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


@pytest.fixture
async def up() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream("g") as server:
        yield server


async def scrape(gear: Bitgear) -> Samples:
    answer = await fetch(gear.admin_url, "/metrics")
    assert answer.status == 200
    assert (answer.head.get("content-type") or "").startswith("text/plain; version=0.0.4")
    found: Samples = defaultdict(dict)
    for family in text_string_to_metric_families(answer.body.decode()):
        assert family.documentation
        for sample in family.samples:
            found[sample.name][tuple(sorted(sample.labels.items()))] = sample.value
    return found


async def test_tokens_and_requests_are_counted_exactly(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    up.enqueue(
        [Send(json_response(WIRE.answer(prompt=7, completion=3)))],
        sends(response(WIRE.stream(["a", "b"], 5, usage=True))),
        sends(response(WIRE.stream(["a", "b", "c"], 5, usage=True))),
    )
    for stream in (False, True, True):
        await fetch(gear.url, "/v1/chat/completions", chat(model="g", stream=stream))
    await fetch(gear.url, "/v1/chat/completions", chat(model="nope"))
    await until(lambda: gear.worker.app.inflight == 0)
    found = await scrape(gear)
    variant = (("group", "g"), ("replica", "0"), ("scenario", "realtime"), ("variant", "fp16"))
    assert found["bitgear_prompt_tokens_total"] == {variant: 17.0}
    assert found["bitgear_completion_tokens_total"] == {variant: 8.0}
    assert sum(found["bitgear_requests_total"].values()) == 4
    assert {dict(k)["status"]: v for k, v in found["bitgear_requests_total"].items()} == {"200": 3.0, "404": 1.0}
    assert found["bitgear_time_to_first_token_seconds_count"] == {variant: 2.0}
    assert found["bitgear_e2e_request_latency_seconds_count"] == {variant: 3.0}
    assert found["bitgear_goodput_requests_total"] == found["bitgear_targeted_requests_total"] == {variant: 3.0}
    assert found["bitgear_goodput_tokens_total"] == {variant: 8.0}
    assert found["bitgear_hold_time_seconds_count"] == found["bitgear_e2e_request_latency_seconds_count"]
    assert 0 < found["bitgear_gpu_seconds_total"][variant] <= found["bitgear_e2e_request_latency_seconds_sum"][variant]
    assert found["bitgear_replica_ready"] == {(*variant[:2], *variant[3:]): 1.0}
    windows = found["bitgear_window_completion_tokens_per_second"]
    assert {dict(k)["window"] for k in windows} == {"10s", "1m", "5m"}
    # Of the longest window: the machine may be slow.
    assert [v for k, v in windows.items() if dict(k)["window"] == "5m"] == [pytest.approx(8 / 300)]


async def test_a_retry_is_counted_for_the_variant_that_failed(bitgear: Start, up: ScriptedUpstream) -> None:
    async with ScriptedUpstream("g") as other:
        gear = await bitgear({"fp16": [up.url, other.url]})
        up.always([Send(json_response(b"{}", 500))])
        other.always([Send(json_response(WIRE.answer()))])
        for _ in range(2):
            assert (await fetch(gear.url, "/v1/chat/completions", chat(model="g"))).status == 200
        assert sum((await scrape(gear))["bitgear_failed_attempts_total"].values()) == len(up.exchanges) == 1


async def test_case_28_labels_are_bounded_whatever_clients_send(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url, "int8": up.url})
    up.always([Send(json_response(WIRE.answer()))])
    rng = random.Random(1)
    secret = "zq-client-said"

    def word() -> str:
        return f"{secret}-{rng.randrange(10**9)}"

    paths = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models/", "/v1/", "/", "/v1/route")
    for i in range(150):
        path = rng.choice(paths)
        if path.endswith("/"):
            path += word()
        body = chat(word(), model=rng.choice(["g", "g@int8", word(), f"g@{word()}"]))
        body |= rng.choice([{}, {"prompt": "x"}, {"input": "x"}, {word(): 1}, {"user": word()}])
        headers = rng.choice(
            [
                [],
                [("x-request-id", word())],
                [("x-bitgear-scenario", rng.choice(["batch", word()]))],
                [("x-bitgear-precision", rng.choice(["int8", word()]))],
                [("x-bitgear-max-risk", rng.choice(["0.5", word()]))],
                [("user-agent", word()), ("authorization", word())],
            ]
        )
        method = "GET" if i % 10 == 0 else rng.choice(["POST", "POST", "PUT", "DELETE"])
        await fetch(gear.url, f"{path}?{word()}", body, headers, method=method)
    found = await scrape(gear)
    values: dict[str, set[str]] = defaultdict(set)
    for samples in found.values():
        for labels in samples:
            for name, value in labels:
                values[name].add(value)
    assert secret not in str(dict(found))
    assert values["group"] <= {"g", "none"}
    assert values["variant"] <= {"fp16", "int8", "none"}
    assert values["scenario"] <= {"realtime", "batch", "edge", "none"}
    assert values["endpoint"] <= {"chat.completions", "completions", "embeddings", "other", "route"}
    assert values["replica"] <= {"0", "none"}
    assert values["window"] == {"10s", "1m", "5m"}
    assert values["kind"] <= {
        "client",
        "overloaded",
        "prompt",
        "completion",
        "lookup",
        "write",
        "connection",
        "unreadable",
    }
    assert values["precision"] <= {"fp16", "int8", "none"}
    assert values["status"] <= {"200", "400", "404", "405", "503"}
    assert len(found["bitgear_requests_total"]) < 100


async def test_a_replica_that_is_out_shows_as_not_ready(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    await up.stop()
    replica = gear.worker.fleet.variants()[0].replicas[0]
    await until(lambda: not replica.ready)
    assert set((await scrape(gear))["bitgear_replica_ready"].values()) == {0.0}


async def test_the_admin_address_shows_the_windows(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    up.always([Send(json_response(WIRE.answer(prompt=7, completion=30)))])
    await fetch(gear.url, "/v1/chat/completions", chat(model="g"), [("x-bitgear-scenario", "batch")])
    await until(lambda: gear.worker.app.inflight == 0)
    windows = (await fetch(gear.admin_url, "/admin/windows")).json()
    assert [(w["window"], w["scenario"], w["variant"], w["replica"]) for w in windows] == [
        (name, "batch", "fp16", "0") for name in ("10s", "1m", "5m")
    ]
    # Of the longest window: the machine may be slow.
    assert (windows[2]["completion_tokens_per_s"], windows[2]["goodput_tokens_per_s"]) == (0.1, 0.1)
    assert windows[2]["prompt_tokens_per_s"] == round(7 / 300, 4)
    assert windows[2]["requests_per_s"] == windows[2]["goodput_requests_per_s"] == round(1 / 300, 4)

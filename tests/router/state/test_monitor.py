"""Watching replicas that lie about their health, break, hang, die and come back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from router.config.runtime import Runtime, RuntimeVariant
from router.config.schema import BreakerConfig, Config
from router.state import Fleet, Monitor, Replica, monitor
from tests.conftest import Bitgear, until
from tests.support.client import chat, fetch
from tests.support.upstream import Close, Exchange, Hang, Script, ScriptedUpstream, Send, sends
from tests.support.wire import DONE, ChatWire, error_body, event, json_response, response

pytestmark = pytest.mark.timing

Start = Callable[..., Awaitable[Bitgear]]
BROKEN = Send(json_response(error_body("boom", "InternalServerError", None, 500), 500))
QUICK = {"failures": 3, "open_s": 0.05, "open_max_s": 0.2}


@pytest.fixture
async def ups() -> AsyncIterator[list[ScriptedUpstream]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(ScriptedUpstream("g")) for _ in range(3)]


def replicas(bitgear: Bitgear) -> list[Replica]:
    return [r for v in bitgear.worker.fleet.variants() for r in v.replicas]


async def ask(bitgear: Bitgear, **more: object) -> int:
    return (await fetch(bitgear.url, "/v1/chat/completions", chat(model="g", **more))).status  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "answer",
    [
        [BROKEN],
        [Close()],
        [Hang()],
        sends(response([ChatWire("g").role(), DONE])),
        sends(response([event('{"choices":[{"delta":"x"}]}')])),
        [Send(json_response(b"{}"))],
    ],
)
async def test_health_alone_never_makes_a_replica_ready(
    bitgear: Start, ups: list[ScriptedUpstream], answer: Script
) -> None:
    up = ups[0]
    up.probe_answer = lambda _: answer
    running = await bitgear({"fp16": up.url}, wait=False, config={"health": {"probe_timeout_s": 0.1}})
    assert (await fetch(up.url, "/health")).status == 200
    await up.until(lambda: sum(e.method == "POST" for e in up.side) >= 3)
    assert not replicas(running)[0].ready
    assert await ask(running) == 503
    assert up.exchanges == []
    up.probe_answer = None
    await until(lambda: replicas(running)[0].ready)
    assert await ask(running) == 200


async def test_readiness_needs_a_completion_on_every_start(bitgear: Start, ups: list[ScriptedUpstream]) -> None:
    running = await bitgear({"fp16": ups[0].url})
    probes = [e for e in ups[0].side if e.method == "POST"]
    assert probes
    assert all(e.json()["max_tokens"] > 1 for e in probes)
    assert replicas(running)[0].max_model_len == 32768
    assert replicas(running)[0].estimator.measured


async def test_repeated_500s_open_the_breaker_at_once_and_a_half_open_probe_closes_it(
    bitgear: Start, ups: list[ScriptedUpstream]
) -> None:
    bad, good = ups[0], ups[1]
    running = await bitgear({"fp16": [bad.url, good.url]}, config={"breaker": QUICK, "balancer": "round_robin"})
    replica = replicas(running)[0]
    bad.always([BROKEN])
    bad.probe_answer = lambda _: [BROKEN]
    began = time.monotonic()
    while replica.ready:
        assert await ask(running) == 200
    assert len(bad.exchanges) == 3
    assert time.monotonic() - began < 2
    assert replica.breaker.state == "open"
    before = len(bad.exchanges)
    for _ in range(6):
        assert await ask(running) == 200
    assert len(bad.exchanges) == before
    probes = len(bad.side)
    await bad.until(lambda: len(bad.side) > probes + 2)
    assert not replica.ready
    bad.probe_answer = None
    bad.always([Send(json_response(ChatWire("g").answer()))])
    await until(lambda: replica.ready)
    assert replica.breaker.state == "closed"
    for _ in range(4):
        assert await ask(running) == 200
    assert len(bad.exchanges) > before


async def test_failed_half_open_probes_come_further_and_further_apart(
    bitgear: Start, ups: list[ScriptedUpstream]
) -> None:
    up, times = ups[0], []

    def probe(_: Exchange) -> Script:
        times.append(time.monotonic())
        return [BROKEN]

    running = await bitgear({"fp16": up.url}, config={"breaker": {"failures": 1, "open_s": 0.05, "open_max_s": 0.4}})
    up.probe_answer = probe
    up.enqueue([BROKEN])
    began = time.monotonic()
    assert await ask(running) == 502
    await up.until(lambda: len(times) >= 4)
    gaps = [b - a for a, b in zip([began, *times], times, strict=False)]
    for gap, least in zip(gaps, (0.05, 0.1, 0.2, 0.4), strict=True):
        assert gap >= least - 0.01


async def test_a_replica_that_is_killed_and_started_again_comes_back(
    bitgear: Start, ups: list[ScriptedUpstream]
) -> None:
    running = await bitgear({"fp16": [ups[0].url, ups[1].url]}, config={"breaker": QUICK})
    replica = replicas(running)[0]
    await ups[0].stop()
    await until(lambda: not replica.ready)
    for _ in range(4):
        assert await ask(running) == 200
    await ups[0].listen()
    await until(lambda: replica.ready)
    served = len(ups[0].exchanges)
    for _ in range(4):
        assert await ask(running) == 200
    assert len(ups[0].exchanges) > served


async def test_case_20_a_hung_replica_is_taken_out_and_slows_nobody_elsewhere(
    bitgear: Start, ups: list[ScriptedUpstream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "_SILENT_S", 1.5)
    monkeypatch.setattr(monitor, "_METRICS_TIMEOUT_S", 0.5)
    hung, well = ups[0], ups[1]
    running = await bitgear({"fp16": [hung.url, well.url]}, config={"breaker": {**QUICK, "open_s": 5}})
    replica = replicas(running)[0]
    hung.always([Hang()])
    hung.metrics_answer = lambda _: [Hang()]
    hung.probe_answer = lambda _: [Hang()]
    # One request falls into the hole; whatever comes while it hangs goes elsewhere, fast.
    lost = [asyncio.create_task(ask(running)) for _ in range(2)]
    await hung.until(lambda: hung.running == 1)
    for _ in range(20):
        began = time.monotonic()
        assert await ask(running) == 200
        assert time.monotonic() - began < 2
    await until(lambda: not replica.ready)
    hung.always([Send(json_response(ChatWire("g").answer()))])
    for task in lost:
        task.cancel()
    await asyncio.gather(*lost, return_exceptions=True)
    assert hung.peak_running == 1


async def test_a_busy_server_that_is_late_with_metrics_stays_in(
    bitgear: Start, ups: list[ScriptedUpstream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "_METRICS_TIMEOUT_S", 0.02)
    running = await bitgear({"fp16": ups[0].url})
    ups[0].metrics_answer = lambda _: [Hang()]
    seen = len(ups[0].side)
    await ups[0].until(lambda: len(ups[0].side) > seen + 5)
    assert replicas(running)[0].ready


async def test_load_is_read_from_metrics(bitgear: Start, ups: list[ScriptedUpstream]) -> None:
    ups[0].reported_running, ups[0].reported_waiting, ups[0].kv_usage = 7, 3, 0.5
    running = await bitgear({"fp16": ups[0].url})
    replica = replicas(running)[0]
    await until(lambda: replica.metrics is not None)
    assert replica.metrics is not None
    assert (replica.metrics.running, replica.metrics.waiting, replica.metrics.kv_cache_usage) == (7, 3, 0.5)
    # That no place is free shows when as many run at the next reading, and some still wait.
    await until(lambda: replica.load(asyncio.get_running_loop().time(), 10.0) == (7.0, 3.0))


async def test_metrics_of_another_server_are_passed_over(bitgear: Start, ups: list[ScriptedUpstream]) -> None:
    ups[0].metrics_answer = lambda _: [Send(json_response(b"not for us", 404))]
    running = await bitgear({"fp16": ups[0].url})
    seen = len(ups[0].side)
    await ups[0].until(lambda: len(ups[0].side) > seen + 4)
    replica = replicas(running)[0]
    assert replica.ready
    assert replica.metrics is None


async def test_the_sidecar_of_a_hosted_model_is_not_billed_for_probes(
    bitgear: Start, ups: list[ScriptedUpstream]
) -> None:
    ups[0].health_status = 503
    running = await bitgear({"fp16": ups[0].url}, variant={"kind": "litellm"}, wait=False)
    await ups[0].until(lambda: len(ups[0].side) >= 2)
    assert not replicas(running)[0].ready
    ups[0].health_status = 200
    await until(lambda: replicas(running)[0].ready)
    assert all(e.method == "GET" for e in ups[0].side)


async def test_one_line_says_a_replica_is_out_and_one_that_it_is_back(
    bitgear: Start, ups: list[ScriptedUpstream], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bitgear")
    running = await bitgear({"fp16": ups[0].url}, config={"breaker": QUICK})
    replica = replicas(running)[0]
    await ups[0].stop()
    await until(lambda: not replica.ready)
    await until(lambda: replica.breaker.retry_at > 0 and replica.breaker._pause_s >= 0.2)
    await ups[0].listen()
    await until(lambda: replica.ready)
    lines = [r.getMessage() for r in caplog.records]
    assert sum("replica out" in line for line in lines) == 1
    assert sum("replica ready" in line for line in lines) == 2


async def test_whatever_fails_inside_the_watch_goes_on(
    ups: list[ScriptedUpstream], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0
    real = monitor.parse_vllm_metrics

    def broken(text: bytes) -> object:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("boom")
        return real(text)

    monkeypatch.setattr(monitor, "parse_vllm_metrics", broken)
    spec = RuntimeVariant(group="g", variant="fp16", precision="fp16", urls=(ups[0].url,), served_model="g")
    config = Config.model_validate({"health": {"metrics_interval_s": 0.02, "probe_interval_s": 0.02}})
    fleet = Fleet(Runtime(config=config, variants=(spec,)), {}, {})
    watch = Monitor(fleet, config.health, logging.getLogger("bitgear"))
    watch.start()
    replica = fleet.variants()[0].replicas[0]
    await until(lambda: replica.metrics is not None)
    await watch.stop()
    fleet.close()
    assert sum("watching failed" in r.getMessage() for r in caplog.records) == 1


async def test_stopping_ends_the_watch(ups: list[ScriptedUpstream]) -> None:
    spec = RuntimeVariant(group="g", variant="fp16", precision="fp16", urls=(ups[0].url,), served_model="g")
    config = Config.model_validate({"health": {"metrics_interval_s": 0.01}})
    fleet = Fleet(Runtime(config=config, variants=(spec,)), {}, {})
    watch = Monitor(fleet, config.health, logging.getLogger("bitgear"))
    watch.start()
    await ups[0].until(lambda: len(ups[0].side) > 5)
    await watch.stop()
    fleet.close()
    await ups[0].until(lambda: ups[0].open_connections == 0)
    seen = len(ups[0].side)
    await asyncio.sleep(0.05)
    assert len(ups[0].side) == seen


def test_breakers_defaults_are_quick() -> None:
    assert BreakerConfig().failures == 3

"""Case 21: what is removed stops being probed, and requests in flight on it finish; nothing is lost on the way."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from router.control.document import Canary, ControlDocument, GroupTuning
from router.control.follow import Refused
from router.control.store import open_store
from router.keys.record import KeyRecord, new_key
from tests.cases.helpers import CHAT_PATH, WIRE, Start, ask, settled, stream
from tests.conftest import until
from tests.support.client import Answer, RawClient, chat, fetch
from tests.support.upstream import ScriptedUpstream, Wait, sends
from tests.support.wire import DONE, response

EVENTS = [WIRE.role(), WIRE.content("Hel"), WIRE.content("lo", "stop"), DONE]
WIRES = response(EVENTS)


def group(*urls: str, **more: Any) -> dict[str, Any]:
    """A configuration of group `g` with one variant."""
    return {"groups": {"g": {"backends": [{"precision": "fp16", "urls": list(urls), "model": "g"}], **more}}}


async def change(gear: Any, number: int, config: dict[str, Any], **more: Any) -> None:
    await gear.worker.apply(ControlDocument(version=number, config=config, **more))


def replicas(gear: Any) -> dict[str, Any]:
    return {r.url: r for v in gear.worker.fleet.variants() for r in v.replicas}


async def test_case_21_a_removed_replica_is_probed_no_longer_and_its_request_finishes(
    bitgear: Start, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": [up.url, other.url]}, config=group(up.url, other.url))
    go = asyncio.Event()
    for one in (up, other):
        one.always([*sends(WIRES[:3]), Wait(go), *sends(WIRES[3:])])
    running = [asyncio.create_task(stream(gear.url)) for _ in range(2)]
    await until(lambda: up.running == 1 and other.running == 1)
    kept, removed = replicas(gear)[up.url], replicas(gear)[other.url]
    await change(gear, 1, group(up.url))
    assert replicas(gear) == {up.url: kept}
    assert kept.ready
    assert kept.inflight == removed.inflight == 1
    looks = len(other.side)
    before = len(up.side)
    await until(lambda: len(up.side) > before + 3)
    # One read may have been on its way.
    assert len(other.side) <= looks + 1
    go.set()
    answers = await asyncio.gather(*running)
    assert [(a.status, a.body) for a in answers] == [(200, b"".join(EVENTS))] * 2
    await settled(gear, up, other)
    assert removed.inflight == 0
    assert removed.pool.idle == 0
    before = len(other.exchanges)
    assert (await stream(gear.url)).status == 200
    assert len(other.exchanges) == before


async def test_case_21_a_request_on_its_way_to_what_was_removed_still_gets_there(
    bitgear: Start, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": up.url}, config=group(up.url))
    serving = gear.worker.serving
    await change(gear, 1, group(other.url))
    old = serving.fleet.variants()[0].replicas[0]
    assert old.available(time.monotonic())
    assert old.url == up.url


async def test_a_replica_that_stays_keeps_what_was_learnt(
    bitgear: Start, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": up.url}, config=group(up.url))
    up.always(sends(WIRES))
    assert (await stream(gear.url)).status == 200
    before = gear.worker.fleet.groups["g"]
    await change(gear, 1, {**group(up.url, other.url), "breaker": {"failures": 1}})
    after = gear.worker.fleet.groups["g"]
    assert after.variants["fp16"].replicas[0] is before.variants["fp16"].replicas[0]
    assert after.variants["fp16"].traffic is before.variants["fp16"].traffic
    assert after.lengths is before.lengths
    assert after.variants["fp16"].replicas[1].index == 1
    assert after.variants["fp16"].replicas[0].breaker.failure(1.0)
    await until(lambda: after.variants["fp16"].replicas[1].ready)
    # The first goes, the second stays under its number; a third one takes the free number.
    await change(gear, 2, group(other.url, up.url + "/x"))
    assert [r.index for r in gear.worker.fleet.variants()[0].replicas] == [1, 0]


async def test_thresholds_alone_change_nothing_else(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url, "int8": up.url})
    before = gear.worker.serving
    tuning = GroupTuning(thresholds={"int8": 0.77}, canary=Canary(share=0.5, thresholds={"int8": 0.9}, since=1.0))
    await change(gear, 4, {}, groups={"g": tuning})
    after = gear.worker.serving
    assert (after.runtime, after.decider, after.caching) == (before.runtime, before.decider, before.caching)
    assert after.fleet.groups["g"].variants["int8"] is before.fleet.groups["g"].variants["int8"]
    assert after.fleet.groups["g"].thresholds["int8"] == 0.77
    seen = set()
    async with asyncio.timeout(60):
        while len(seen) < 2:
            told = (await fetch(gear.url, "/v1/route", chat(model="g"))).json()["decision"]
            row = next(c for c in told["candidates"] if c["variant"] == "int8")
            seen.add((told["policy_version"], told["arm"], row["threshold"]))
    assert seen == {("4", "stable", 0.77), ("4-canary", "canary", 0.9)}


async def test_a_bad_change_changes_nothing(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url}, config=group(up.url))
    before = gear.worker.serving
    for config in ({"server": {"port": 1}}, {"thresholds": {"int8": 9}}, {"groups": {"g": {"backends": []}}}):
        with pytest.raises(Refused):
            await change(gear, 1, config)
        assert gear.worker.serving is before
    with pytest.raises(Refused):
        await change(gear, 1, {}, groups={"g": GroupTuning(thresholds={"int8": -1})})
    assert gear.worker.serving is before


async def test_a_drained_replica_takes_no_new_request_until_it_may(
    bitgear: Start, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": [up.url, other.url]}, config=group(up.url, other.url))
    for one in (up, other):
        one.always(sends(WIRES))
    await change(gear, 1, {}, drained={"g@fp16": (up.url,)})
    before = len(up.exchanges)
    for _ in range(4):
        assert (await stream(gear.url)).status == 200
    assert len(up.exchanges) == before
    await change(gear, 2, {}, drained={"g@fp16": (other.url,)})
    assert (await stream(gear.url)).status == 200
    assert len(up.exchanges) == before + 1


async def test_fifty_changes_under_load_lose_no_request(
    bitgear: Start, up: ScriptedUpstream, other: ScriptedUpstream, redis_url: str
) -> None:
    gear = await bitgear({"fp16": up.url}, config=group(up.url), redis_url=redis_url)
    for one in (up, other):
        one.always(sends(WIRES))
    store = open_store(redis_url, password=None, timeout_s=5)
    done = asyncio.Event()
    statuses: list[int] = []

    async def client() -> None:
        async with RawClient(gear.url) as connection:
            while not done.is_set():
                await connection.request("POST", CHAT_PATH, ask())
                answer: Answer = await connection.answer(timeout=30)
                statuses.append(answer.status if answer.body == b"".join(EVENTS) else 0)

    clients = [asyncio.create_task(client()) for _ in range(8)]
    urls = [(up.url,), (up.url, other.url), (other.url, up.url)]
    for number in range(50):
        config = {**group(*urls[number % 3]), "timeouts": {"total_s": 100 + number}}
        made = await store.publish(
            ControlDocument(config=config, groups={"g": GroupTuning(thresholds={"int8": number / 100})}),
            expected=number,
        )
        await until(lambda made=made: gear.worker.serving.document.version == made.version)  # type: ignore[misc]
    done.set()
    await asyncio.gather(*clients)
    assert set(statuses) == {200}
    assert len(statuses) > 50
    assert gear.worker.serving.config.timeouts.total_s == 149
    await store.close()


async def test_keys_are_needed_though_the_rest_of_the_document_fits_the_file_no_longer(
    bitgear: Start, up: ScriptedUpstream, redis_url: str
) -> None:
    store = open_store(redis_url, password=None, timeout_s=5)
    # A group that was changed while Bitgear ran, and that the file has no more.
    config = {"groups": {"gone": {"scenario": "batch"}}}
    key, digest = new_key()
    await store.publish(ControlDocument(config=config, keys={"a": KeyRecord(sha256=digest)}), expected=0)
    gear = await bitgear({"fp16": up.url}, redis_url=redis_url)
    with_key = [("authorization", f"Bearer {key}")]
    assert (await fetch(gear.url, CHAT_PATH, chat(model="g"))).status == 401
    assert (await fetch(gear.url, CHAT_PATH, chat(model="g"), with_key)).status == 200
    await store.publish(ControlDocument(config=config, keys={}), expected=1)
    await until(lambda: gear.worker._follower.stats().refused is not None)
    async with asyncio.timeout(10):
        while (await fetch(gear.url, CHAT_PATH, chat(model="g"), with_key)).status == 200:
            await asyncio.sleep(0.05)
    await store.publish(ControlDocument(keys={"a": KeyRecord(sha256=digest)}), expected=2)
    await until(lambda: gear.worker._follower.stats().version == 3)
    assert (await fetch(gear.url, CHAT_PATH, chat(model="g"), with_key)).status == 200
    assert (await fetch(gear.url, CHAT_PATH, chat(model="g"))).status == 401
    await store.close()

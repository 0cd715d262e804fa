"""Whoever asks first and does not read its stream holds nobody up who asks the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.cases.helpers import CHAT_PATH, DONE, USAGE, WIRE, Start, inflight, script
from tests.conftest import SMALL_BUFFER, Bitgear, until
from tests.support.client import Answer, RawClient, chat, fetch
from tests.support.upstream import ScriptedUpstream, Step
from tests.support.wire import response

WORD = "x" * 1000
pytestmark = pytest.mark.usefixtures("small_buffers")


def long_stream(words: int) -> list[Step]:
    return script(response([WIRE.role(), *[WIRE.content(WORD)] * words, WIRE.content(".", "stop"), USAGE, DONE]))


def question(**more: Any) -> dict[str, Any]:
    return chat("long?", model="g", temperature=0, **more)


def told(answer: Answer) -> str:
    return (answer.head.get("x-bitgear-cache") or "").split(";")[0]


async def started(start: Start, redis_url: str, up: ScriptedUpstream, **cache: Any) -> Bitgear:
    gear: Bitgear = await start({"fp16": up.url}, redis_url=redis_url, config={"cache": {"wait_s": 600, **cache}})
    await until(lambda: gear.worker.caching.store.up)
    return gear


@pytest.mark.parametrize("workers", [1, 2])
async def test_others_get_the_answer_while_the_first_one_does_not_read(
    bitgear: Start, redis_url: str, up: ScriptedUpstream, workers: int
) -> None:
    one = await started(bitgear, redis_url, up)
    two = one if workers == 1 else await started(bitgear, redis_url, up)
    up.always(long_stream(500))
    async with RawClient(one.url, receive_buffer=SMALL_BUFFER) as first:
        await first.request("POST", CHAT_PATH, question(stream=True))
        await up.exchange(0)
        others = [fetch(two.url, CHAT_PATH, question(stream=n == 0)) for n in range(2)]
        answers = await asyncio.gather(*others)
        assert [told(a) for a in answers] == ["hit"] * 2
        assert one.worker.app.inflight == 1, "it has still not read"
        # The replica is free long before.
        assert sum(r.inflight for v in one.worker.fleet.variants() for r in v.replicas) == 0
        whole = await first.answer()
    assert whole.complete
    assert whole.body.count(WORD.encode()) == 500
    assert whole.events()[-1] == b"[DONE]"
    await until(lambda: inflight(one) == 0)
    assert len(up.exchanges) == 1


@pytest.mark.parametrize("workers", [1, 2])
async def test_beyond_an_entrys_size_the_others_ask_for_themselves(
    bitgear: Start, redis_url: str, up: ScriptedUpstream, workers: int
) -> None:
    one = await started(bitgear, redis_url, up, max_entry_kib=64)
    two = one if workers == 1 else await started(bitgear, redis_url, up, max_entry_kib=64)
    up.always(long_stream(1000))
    async with RawClient(one.url, receive_buffer=SMALL_BUFFER) as first:
        await first.request("POST", CHAT_PATH, question(stream=True))
        await up.exchange(0)
        others = [fetch(two.url, CHAT_PATH, question(stream=True)) for _ in range(3)]
        answers = await asyncio.gather(*others)
        assert [told(a) for a in answers] == ["miss"] * 3
        assert all(a.complete for a in answers)
        assert one.worker.app.inflight == 1
        # What waits for it is bounded.
        assert not up.exchanges[0].closed.is_set()
        whole = await first.answer()
    assert whole.complete
    assert whole.body.count(WORD.encode()) == 1000
    assert len(up.exchanges) == 4


async def test_one_that_leaves_unread_leaves_nothing_behind(
    bitgear: Start, redis_url: str, up: ScriptedUpstream
) -> None:
    gear = await started(bitgear, redis_url, up)
    up.always(long_stream(500))
    async with RawClient(gear.url, receive_buffer=SMALL_BUFFER) as first:
        await first.request("POST", CHAT_PATH, question(stream=True))
        await up.exchange(0)
        answer = await fetch(gear.url, CHAT_PATH, question())
        assert told(answer) == "hit"
        assert gear.worker.app.inflight == 1
    await until(lambda: inflight(gear) == 0)

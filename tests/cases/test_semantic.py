"""The same question in other words: only for groups that want it, only beside the same conversation, and checked."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from tests.cases.helpers import CHAT_PATH, WIRE, Start, metric, settled
from tests.conftest import Bitgear, until
from tests.support.client import Answer, fetch
from tests.support.upstream import ScriptedUpstream, Send
from tests.support.wire import json_response

ONE = "What is the capital of France?"
OTHER = "Could you please tell me what's the capital of France?"


def says(up: ScriptedUpstream, text: str) -> None:
    up.always([Send(json_response(WIRE.answer(text)))])


async def started(start: Start, redis_url: str, up: ScriptedUpstream, **semantic: Any) -> Bitgear:
    backends = [{"precision": "fp16", "urls": [up.url]}]
    wanted = {"enabled": True, "sample": 0, **semantic}
    gear: Bitgear = await start(
        {"fp16": up.url},
        redis_url=redis_url,
        config={"groups": {"g": {"backends": backends, "cache": {"semantic": wanted}}}},
    )
    await until(lambda: gear.worker.caching.store.up)
    return gear


async def ask(
    gear: Bitgear, text: str, *before: dict[str, str], headers: list[tuple[str, str]] | None = None, **more: Any
) -> Answer:
    body = {"model": "g", "temperature": 0, "messages": [*before, {"role": "user", "content": text}], **more}
    answer = await fetch(gear.url, CHAT_PATH, body, headers or [])
    await settled(gear)
    return answer


def told(answer: Answer) -> str:
    return (answer.head.get("x-bitgear-cache") or "").split(";")[0]


async def test_only_where_it_is_wanted(bitgear: Start, redis_url: str, up: ScriptedUpstream) -> None:
    gear = await started(bitgear, redis_url, up, enabled=False)
    says(up, "Paris")
    assert [told(await ask(gear, text)) for text in (ONE, OTHER)] == ["miss", "miss"]


async def test_another_wording_is_a_hit_and_says_how_alike(
    bitgear: Start, redis_url: str, up: ScriptedUpstream
) -> None:
    gear = await started(bitgear, redis_url, up)
    says(up, "Paris")
    first = await ask(gear, ONE)
    second = await ask(gear, OTHER)
    assert re.fullmatch(r"hit; age=\d+; likeness=0.64", second.head.get("x-bitgear-cache") or "")
    assert second.body == first.body
    assert told(await ask(gear, OTHER, stream=True)) == "hit"
    # Its own wording has no likeness to tell.
    assert re.fullmatch(r"hit; age=\d+", (await ask(gear, ONE)).head.get("x-bitgear-cache") or "")
    assert len(up.exchanges) == 1
    assert await metric(gear, "bitgear_cache_semantic_total") == 2


async def test_everything_else_must_be_the_same(bitgear: Start, redis_url: str, up: ScriptedUpstream) -> None:
    gear = await started(bitgear, redis_url, up)
    says(up, "Paris")
    brief = {"role": "system", "content": "Be brief."}
    await ask(gear, ONE)
    assert told(await ask(gear, OTHER, brief)) == "miss"
    assert told(await ask(gear, OTHER, headers=[("authorization", "Bearer sk-bob")])) == "miss"
    assert told(await ask(gear, OTHER, max_tokens=9)) == "miss"
    assert told(await ask(gear, OTHER, model="g@fp16")) == "miss"
    assert told(await ask(gear, OTHER.replace("France", "Italy"))) == "miss"
    assert told(await ask(gear, OTHER, headers=[("cache-control", "no-cache")])) == "miss"
    assert told(await ask(gear, OTHER, headers=[("cache-control", "no-store")])) == "bypass"


async def test_purged_with_the_rest(bitgear: Start, redis_url: str, up: ScriptedUpstream) -> None:
    gear = await started(bitgear, redis_url, up)
    says(up, "Paris")
    await ask(gear, ONE)
    purged = await fetch(gear.admin_url, "/admin/cache/purge", {"tenant": "anonymous"})
    # The answer, and what remembers its wording.
    assert purged.json() == {"purged": 2}
    assert told(await ask(gear, OTHER)) == "miss"


async def test_checked_hits_that_are_right_leave_the_threshold(
    bitgear: Start, redis_url: str, up: ScriptedUpstream
) -> None:
    gear = await started(bitgear, redis_url, up, sample=1)
    says(up, "It is Paris.")
    await ask(gear, ONE)
    assert told(await ask(gear, OTHER)) == "miss"
    assert len(up.exchanges) == 2
    assert gear.worker.caching.semantic.audits["g"].checked == 1
    assert gear.worker.caching.semantic.audits["g"].threshold == 0.4


async def test_wrong_hits_raise_the_threshold_until_there_are_none(
    bitgear: Start, redis_url: str, up: ScriptedUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="bitgear")
    gear = await started(bitgear, redis_url, up, sample=1)
    audit = gear.worker.caching.semantic.audits["g"]
    says(up, "Paris, 75001")
    await ask(gear, ONE)
    says(up, "Lyon, 69001")
    assert (await ask(gear, OTHER)).json()["choices"][0]["message"]["content"] == "Lyon, 69001"
    assert audit.threshold == pytest.approx(0.45)
    assert any("wrong" in r.getMessage() and "threshold=0.45" in r.getMessage() for r in caplog.records)
    assert await metric(gear, "bitgear_cache_semantic_total") == 1


async def test_the_threshold_is_every_workers_and_outlives_them(
    bitgear: Start, redis_url: str, up: ScriptedUpstream
) -> None:
    one = await started(bitgear, redis_url, up, sample=1)
    two = await started(bitgear, redis_url, up)
    says(up, "Paris, 75001")
    await ask(one, ONE)
    says(up, "Lyon, 69001")
    await ask(one, OTHER)
    # Another worker takes it over at its next look, a new one at its first.
    await ask(two, ONE + " Really?")
    new = await started(bitgear, redis_url, up)
    await ask(new, OTHER + " Really?")
    thresholds = [g.worker.caching.semantic.audits["g"].threshold for g in (one, two, new)]
    assert thresholds == [pytest.approx(0.45)] * 3
    # Who configures another one begins anew.
    other = await started(bitgear, redis_url, up, threshold=0.3)
    await ask(other, ONE + " Is it?")
    assert other.worker.caching.semantic.audits["g"].threshold == pytest.approx(0.3)

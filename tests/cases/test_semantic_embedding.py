"""Other wordings found by a server's vectors: right ones only, in every worker, and never at a request's cost."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

import pytest
from pydantic import ValidationError
from redis import Redis

from router.cache.secret import CacheSetupError
from router.config.schema import Config
from router.config.semantic import EmbeddingConfig
from tests.cases.helpers import CHAT_PATH, WIRE, Start, metric, settled
from tests.conftest import Bitgear, until
from tests.router.cache.semantic.held_out import ROWS
from tests.support.client import Answer, fetch
from tests.support.upstream import Exchange, Hang, Script, ScriptedUpstream, Send
from tests.support.vectors import answers, vector_of
from tests.support.wire import json_response

ONE = "How do cats sleep at night on a warm sofa in the old house?"
OTHER = "How do cats sleep at night on a warm couch in the old house?"
NEAR = "How do cats sleep at night on a cold sofa in the old house?"
TIMEOUT_S = 0.3
SLACK_S = 1.0


def echo(exchange: Exchange) -> Script:
    """Each question is its own answer, so that a wrong hit shows."""
    text = exchange.json()["messages"][-1]["content"]
    return [Send(json_response(WIRE.answer("@").replace(b'"@"', json.dumps(text).encode())))]


async def started(
    start: Start, redis_url: str, up: ScriptedUpstream, vectors: ScriptedUpstream, **more: Any
) -> Bitgear:
    backends = [{"precision": "fp16", "urls": [up.url]}]
    embedding = {"url": vectors.url, "model": "v", "timeout_ms": 5000, **more.pop("embedding", {})}
    wanted = {"enabled": True, "sample": 0, "guard": "content", "embedding": embedding, **more}
    cache = {"cache": {"timeout_ms": 2000}, "groups": {"g": {"backends": backends, "cache": {"semantic": wanted}}}}
    gear: Bitgear = await start({"fp16": up.url}, redis_url=redis_url, config=cache)
    await until(lambda: gear.worker.caching.store.up)
    return gear


async def ask(gear: Bitgear, text: str, headers: list[tuple[str, str]] | None = None, **more: Any) -> Answer:
    body = {"model": "g", "temperature": 0, "messages": [{"role": "user", "content": text}], **more}
    answer = await fetch(gear.url, CHAT_PATH, body, headers or [])
    assert answer.status == 200
    await settled(gear)
    return answer


def told(answer: Answer) -> str:
    return (answer.head.get("x-bitgear-cache") or "").split(";")[0]


def said(answer: Answer) -> str:
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


async def test_zero_wrong_hits_at_the_default_threshold(
    bitgear: Start, redis_url: str, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    """All held-out questions through one Bitgear: 210 near misses beside 210 wordings of 70 questions."""
    gear = await started(bitgear, redis_url, up, other)
    up.choose, other.choose = echo, answers()
    wrong: list[tuple[str, str]] = []
    hits = 0

    async def seen(text: str) -> None:
        nonlocal hits
        body = {"model": "g", "temperature": 0, "messages": [{"role": "user", "content": text}]}
        answer = await fetch(gear.url, CHAT_PATH, body, timeout=60)
        assert answer.status == 200
        if told(answer) == "hit":
            right = any(text in row[:3] and said(answer) in row[:3] for row in ROWS)
            hits += right
            if not right:
                wrong.append((text, said(answer)))

    for texts in ([r[0] for r in ROWS], [t for r in ROWS for t in r[1:3]], [r[3] for r in ROWS]):
        for at in range(0, len(texts), 35):
            await asyncio.gather(*(seen(text) for text in texts[at : at + 35]))
            await settled(gear, timeout=30)
    assert len(gear.worker.caching.semantic.indexes["g"]) >= 200
    assert 3 * len(ROWS) >= 200
    assert wrong == []
    # As the documentation states.
    assert hits == 0
    assert len(other.exchanges) == 4 * len(ROWS)


async def test_a_nearer_wording_is_a_hit_and_a_near_miss_is_none(
    bitgear: Start, redis_url: str, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    gear = await started(bitgear, redis_url, up, other, embedding={"threshold": 0.8})
    up.choose, other.choose = echo, answers()
    assert told(await ask(gear, ONE)) == "miss"
    # As near as the other wording, or nearer; the guard sees `cold`.
    assert told(await ask(gear, NEAR)) == "miss"
    hit = await ask(gear, OTHER)
    assert (told(hit), said(hit)) == ("hit", ONE)
    assert "likeness=0." in (hit.head.get("x-bitgear-cache") or "")
    # Everything but the last turn must be the same.
    assert told(await ask(gear, OTHER + "!", max_tokens=9)) == "miss"
    assert told(await ask(gear, OTHER, [("authorization", "Bearer sk-bob")])) == "miss"
    assert other.exchanges[0].json() == {"model": "v", "input": ONE, "encoding_format": "float"}
    assert await metric(gear, "bitgear_cache_semantic_total") == 1


async def test_strict_goes_with_vectors_too(
    bitgear: Start, redis_url: str, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    gear = await started(bitgear, redis_url, up, other, guard="strict")
    up.choose, other.choose = echo, answers(lambda text: [1.0, 2.0])
    await ask(gear, ONE)
    assert told(await ask(gear, OTHER)) == "miss"
    assert told(await ask(gear, "Please " + ONE)) == "hit"


async def test_all_workers_see_it_old_and_new_and_a_purge_ends_it(
    bitgear: Start, redis_url: str, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    up.choose, other.choose = echo, answers(lambda text: [1.0, 0.0])
    one = await started(bitgear, redis_url, up, other)
    two = await started(bitgear, redis_url, up, other)
    await ask(one, ONE)
    await until(lambda: len(two.worker.caching.semantic.indexes["g"]) == 1)
    assert said(await ask(two, OTHER)) == ONE
    three = await started(bitgear, redis_url, up, other)
    await until(lambda: len(three.worker.caching.semantic.indexes["g"]) == 1)
    assert said(await ask(three, OTHER)) == ONE
    with Redis.from_url(redis_url) as client:
        (stream,) = client.keys("bitgear:v1:*")
        assert 0 < client.pttl(stream) <= 86_400_000
        row = client.xrange(stream)[0][1][b"v"]
        assert not any(word in row for word in (b"cats", b"sofa"))
        purged = await fetch(one.admin_url, "/admin/cache/purge", {"group": "g"})
        assert purged.json() == {"purged": 1}
        assert client.keys("bitgear:v1:*") == []
    # What a worker still knows has no answer any more: it is forgotten.
    assert told(await ask(two, OTHER)) == "miss"
    assert said(await ask(two, OTHER)) == OTHER


async def test_the_books_of_wrong_hits_hold_for_vectors(
    bitgear: Start, redis_url: str, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    gear = await started(bitgear, redis_url, up, other, sample=1)
    other.choose = answers(lambda text: [1.0, 0.0])
    up.always([Send(json_response(WIRE.answer("Use a brush.")))])
    await ask(gear, "How do I paint?")
    up.always([Send(json_response(WIRE.answer("Move your arms.")))])
    assert said(await ask(gear, "How do I swim?")) == "Move your arms."
    audit = gear.worker.caching.semantic.audits["g"]
    assert audit.base == EmbeddingConfig(url="http://x", model="v").threshold == 0.96
    assert audit.threshold == pytest.approx(1.01)
    # Nothing is alike enough now.
    assert told(await ask(gear, "How do I sing?")) == "miss"
    assert audit.checked == 0


@pytest.mark.timing
@pytest.mark.parametrize("how", ["hangs", "refuses", "nonsense", "no vector", "away"])
async def test_a_failing_server_delays_no_request_beyond_its_bound(
    bitgear: Start,
    redis_url: str,
    up: ScriptedUpstream,
    other: ScriptedUpstream,
    how: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="bitgear")
    bodies = {"nonsense": b"[1", "no vector": b'{"data":[{"embedding":[0,0]}]}'}
    up.choose = echo
    other.choose = lambda _: (
        [Hang()]
        if how == "hangs"
        else [Send(json_response(b"{}", 500))]
        if how == "refuses"
        else [Send(json_response(bodies.get(how, b"{}")))]
    )
    place = {"url": "http://127.0.0.1:9"} if how == "away" else {}
    gear = await started(bitgear, redis_url, up, other, embedding={"timeout_ms": TIMEOUT_S * 1000, **place})
    took = []
    for n in range(20):
        began = time.monotonic()
        assert told(await ask(gear, f"How do I paint {n} walls?")) == "miss"
        took.append(time.monotonic() - began)
    assert max(took) < TIMEOUT_S + SLACK_S
    # Those after the first do not ask, but for one after each pause.
    assert sum(t >= TIMEOUT_S for t in took) <= 1 + sum(took) / 0.5
    about = [r.getMessage() for r in caplog.records if "vectors" in r.getMessage()]
    assert len(about) == 1
    if how == "away":
        return
    other.choose = answers(lambda text: [1.0, 0.0])
    async with asyncio.timeout(60):
        while len(gear.worker.caching.semantic.indexes["g"]) == 0:
            await ask(gear, f"How do I paint {time.monotonic_ns()} walls?")
            await asyncio.sleep(0.05)
    about = [r.getMessage() for r in caplog.records if "vectors" in r.getMessage()]
    assert len(about) == 2
    assert "back" in about[1]


async def test_a_group_of_this_file_may_give_the_vectors(
    bitgear: Start, redis_url: str, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    """The group `g` itself here: its first variant is asked under the name that it is served by."""
    up.choose = lambda e: answers()(e) if e.target == "/v1/embeddings" else echo(e)
    gear = await started(
        bitgear, redis_url, up, other, embedding={"url": None, "model": None, "group": "g", "threshold": 0.8}
    )
    await ask(gear, ONE)
    assert said(await ask(gear, OTHER)) == ONE
    assert [e.json()["model"] for e in up.exchanges if e.target == "/v1/embeddings"] == ["g", "g"]
    with pytest.raises(CacheSetupError, match="no group 'nobody'"):
        await started(bitgear, redis_url, up, other, embedding={"url": None, "group": "nobody"})


@pytest.mark.parametrize(
    ("semantic", "why"),
    [
        ({"guard": "content"}, "needs an `embedding`"),
        ({"embedding": {"model": "v"}}, "either `url` or `group`"),
        ({"embedding": {"url": "http://a", "group": "g", "model": "v"}}, "either `url` or `group`"),
        ({"embedding": {"url": "http://a"}}, "needs a `model`"),
        ({"embedding": {"url": "a", "model": "v"}}, "url"),
    ],
)
def test_what_cannot_work_is_refused(semantic: dict[str, Any], why: str) -> None:
    backends = [{"precision": "fp16", "urls": ["http://a"]}]
    with pytest.raises(ValidationError, match=why):
        Config.model_validate({"groups": {"g": {"backends": backends, "cache": {"semantic": semantic}}}})


def test_the_vectors_are_such_that_only_the_guard_tells() -> None:
    def cosine(a: str, b: str) -> float:
        x, y = vector_of(a), vector_of(b)
        return float(
            sum(p * q for p, q in zip(x, y, strict=True)) / (sum(p * p for p in x) * sum(q * q for q in y)) ** 0.5
        )

    assert cosine(ONE, NEAR) > 0.8
    assert cosine(ONE, OTHER) > 0.8

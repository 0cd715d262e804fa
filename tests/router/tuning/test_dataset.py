"""Records from real streams: joined in either order, the last word holds, and nothing broken gets in or stops it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from router.feedback.entry import label_entry
from router.store.valkey import PrivateValkey
from router.tuning.dataset import Records, read_records
from router.tuning.records import Label, Option

NOW = round(time.time(), 3)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateValkey]:
    found = PrivateValkey(tmp_path_factory.mktemp("valkey"))
    found.start()
    yield found
    found.stop()


@pytest.fixture
def redis(server: PrivateValkey) -> Iterator[Redis]:
    with Redis.from_url(server.url) as client:
        client.flushall()
        yield client


async def read(server: PrivateValkey, *, since: float = NOW - 60, limit: int = 1000, group: str = "g") -> Records:
    async with AsyncRedis.from_url(server.url) as client:
        return await read_records(client, group=group, since=since, limit=limit)


def event(name: str, **more: Any) -> dict[str, Any]:
    return {
        "id": name,
        "t": NOW,
        "tenant": "alice",
        "group": "g",
        "variant": "int8",
        "status": 200,
        "error": None,
        "prompt_tokens": 90,
        "completion_tokens": 20,
        "ttft_ms": 600.0,
        "e2e_ms": 2600.0,
        "risks": {"int8": 0.1},
        "scenario": "realtime",
        "policy": "4-canary",
        "arm": "canary",
        "reason": "explored",
        "explored": True,
        "propensity": 0.02,
        "candidates": [
            ["fp16", True, 0.0, 1.0, 0.5, None, "fp16", 16.25, True, False, 0.6, 0.98],
            ["int8", True, 0.1, 0.2, 0.3, 0.4, "int8", 8.0, True, False, 0.4, 0.02],
        ],
        "targets": [1.0, None, "quality", "cheapest"],
        **more,
    }


def put(redis: Redis, *events: dict[str, Any]) -> None:
    for one in events:
        redis.xadd("bitgear:events", {"event": orjson.dumps(one)})


def tell(redis: Redis, name: str, source: str, value: float, at: float = NOW, **more: Any) -> None:
    key = more.pop("key", "alice")
    facts = event(name, **more.pop("facts", {}))
    redis.xadd("bitgear:feedback", {"feedback": orjson.dumps(label_entry(facts, source, value, at, key=key, **more))})


async def test_an_event_becomes_the_record_it_tells_of(server: PrivateValkey, redis: Redis) -> None:
    put(redis, event("1"))
    found = await read(server)
    (record,) = found.records
    assert record.options == (
        Option("fp16", "fp16", 16.25, True, True, 0.0, 1.0, 0.5, float("inf"), 0.98),
        Option("int8", "int8", 8.0, True, True, 0.1, 0.2, 0.3, 0.4, 0.02),
    )
    assert record[:9] == ("1", NOW, "g", "realtime", "4-canary", "canary", True, "int8", record.options)
    assert (record.prompt_tokens, record.completion_tokens, record.ttft_s, record.e2e_s) == (90, 20, 0.6, 2.6)
    assert (record.ok, record.labels, record.ttft_target_s, record.e2e_target_s) == (True, (), 1.0, None)


async def test_labels_find_their_record_whichever_came_first_and_the_last_word_holds(
    server: PrivateValkey, redis: Redis
) -> None:
    tell(redis, "1", "thumbs", 0.0)
    put(redis, event("1"), event("2"))
    tell(redis, "1", "thumbs", 1.0, NOW + 5)
    tell(redis, "1", "score", 0.4)
    tell(redis, "1", "thumbs", 0.3, key="judge")
    tell(redis, "2", "shadow:match", 0.0, key="", reference=1.0)
    tell(redis, "2", "shadow:match", 0.5, key="", reference=1.0, of="int4")
    tell(redis, "nobody", "thumbs", 1.0)
    tell(redis, "1", "thumbs", 0.1, facts={"tenant": "mallory"}, key="mallory")
    tell(redis, "1", "thumbs", 0.1, facts={"t": NOW - 9}, key="alice")
    found = await read(server)
    first, second = found.records
    assert set(first.labels) == {
        Label("thumbs", 1.0, None, "alice", NOW + 5),
        Label("score", 0.4, None, "alice", NOW),
        Label("thumbs", 0.3, None, "judge", NOW),
    }
    assert second.labels == (Label("shadow:match", 0.0, 1.0, "", NOW),)
    assert second.others == (Label("shadow:match", 0.5, 1.0, "", NOW, "int4"),)
    assert (found.labels, found.labels_unmatched, found.labels_broken) == (5, 3, 0)


async def test_only_decided_requests_of_the_group_count(server: PrivateValkey, redis: Redis) -> None:
    put(
        redis,
        event("cached", reason="cached"),
        event("pinned", reason="pinned"),
        event("other", group="h"),
        event("mistake", status=400, error="http_400"),
        event("left", status=499, error="client_left"),
        event("failed", status=502, error="closed"),
    )
    found = await read(server)
    assert [(r.id, r.ok) for r in found.records] == [("left", False), ("failed", False)]
    assert (found.events, found.skipped, found.events_broken) == (6, 4, 0)


async def test_the_newest_within_time_and_limit(server: PrivateValkey, redis: Redis) -> None:
    put(redis, *(event(str(n)) for n in range(450)))
    found = await read(server, limit=300)
    assert [r.id for r in found.records] == [str(n) for n in range(150, 450)]
    assert found.truncated
    everything = await read(server, limit=450)
    assert (len(everything.records), everything.truncated) == (450, False)
    assert (await read(server, since=time.time() + 60)).records == []


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.sampled_from(sorted(event("x"))), st.sampled_from((None, "x", -1, [], {}, [[1]], 7e999)))
async def test_broken_entries_are_counted_and_stop_nothing(
    server: PrivateValkey, redis: Redis, name: str, value: Any
) -> None:
    redis.flushall()
    put(redis, event("good"), {**event("bad"), name: value}, {k: v for k, v in event("less").items() if k != name})
    redis.xadd("bitgear:events", {"event": b"{"})
    redis.xadd("bitgear:events", {"other": b"x"})
    for entry in (b"{", b"[]", b"{}", orjson.dumps(label_entry(event("good"), "score", 2.0, NOW))):
        redis.xadd("bitgear:feedback", {"feedback": entry})
    tell(redis, "good", "score", 0.5)
    found = await read(server)
    good = [r for r in found.records if r.id == "good"]
    assert [r.labels for r in good] == [(Label("score", 0.5, None, "alice", NOW),)]
    assert found.events == 5
    assert found.events_broken >= 2
    assert found.labels_broken == 4


async def test_an_event_that_was_kept_by_chance_stands_for_more(server: PrivateValkey, redis: Redis) -> None:
    put(redis, event("all"), event("some", sampled=0.25), event("broken", sampled=0.0))
    found = await read(server)
    assert [(r.id, r.weight) for r in found.records] == [("all", 1.0), ("some", 4.0)]
    assert found.events_broken == 1

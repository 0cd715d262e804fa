"""What becomes known of answers' quality, end to end: statements, signals without words, shadow pairs, records."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from backends.settings import SimulatorSettings
from backends.simulator import simulated
from router.decision.arms import CanaryArm
from router.feedback.agreement import agreements
from router.feedback.inbox import MOST_AT_ONCE
from router.store.valkey import PrivateValkey
from router.tuning.dataset import read_records
from router.tuning.records import Record
from tests.cases.helpers import CHAT_PATH, WIRE, Start, leave_after, metric, settled
from tests.conftest import Bitgear, until
from tests.support.client import Answer, RawClient, chat, fetch
from tests.support.upstream import Exchange, Hang, ScriptedUpstream, Send, Step, sends
from tests.support.wire import json_response, response

FAST = SimulatorSettings(time_scale=0)
ALICE, BOB = [("authorization", "Bearer sk-alice")], [("authorization", "Bearer sk-bob")]
FEEDBACK = "/v1/feedback"
PATIENT: dict[str, Any] = {"redis": {"timeout_s": 60.0}}
"""A busy machine is no absent Redis."""


async def say(gear: Bitgear, body: dict[str, Any], headers: list[tuple[str, str]] = ALICE) -> tuple[int, Any]:
    answer = await fetch(gear.url, FEEDBACK, body, headers)
    return answer.status, json.loads(answer.body)


async def asked(gear: Bitgear, headers: list[tuple[str, str]] = ALICE, **more: Any) -> str:
    answer = await fetch(gear.url, CHAT_PATH, chat(model="g", **more), headers)
    assert answer.status == 200
    return answer.head.get("x-request-id") or ""


def labels(redis_url: str, stream: str = "bitgear:feedback", field: bytes = b"feedback") -> list[dict[str, Any]]:
    with Redis.from_url(redis_url) as client:
        return [json.loads(fields[field]) for _, fields in client.xrange(stream)]


async def records(redis_url: str, enough: Callable[[list[Record]], bool]) -> list[Record]:
    async with asyncio.timeout(60), AsyncRedis.from_url(redis_url) as client:
        while True:
            found = (await read_records(client, group="g", since=time.time() - 3600, limit=1000)).records
            if enough(found):
                return found
            await asyncio.sleep(0.02)


async def test_feedback_finds_its_answer_and_the_last_word_holds(bitgear: Start, redis_url: str) -> None:
    async with simulated(FAST, model="g", precision="int8") as int8:
        gear = await bitgear({"int8": int8}, redis_url=redis_url, config=PATIENT)
        async with AsyncOpenAI(base_url=f"{gear.url}/v1", api_key="sk-alice", max_retries=0) as client:
            raw = await client.chat.completions.with_raw_response.create(
                model="g", messages=[{"role": "user", "content": "2+2?"}]
            )
            name = raw.headers["x-request-id"]
            first: Any = await client.post(
                "/feedback", body={"request_id": name, "thumbs": "down", "comment": "no"}, cast_to=object
            )
            assert first["changed"]
            with pytest.raises(openai.BadRequestError) as refused:
                await client.post("/feedback", body={"request_id": name, "score": 2}, cast_to=object)
            assert refused.value.param == "score"
        again = await say(gear, {"request_id": name, "thumbs": "down", "comment": "no"})
        other = await say(gear, {"request_id": name, "thumbs": "up"})
        score = await say(gear, {"request_id": name, "metric": {"name": "tests", "value": 0.5}})
        assert [(s, b["changed"], b["count"]) for s, b in (again, other, score)] == [
            (200, False, 1),
            (200, True, 2),
            (200, True, 1),
        ]
        (record,) = await records(redis_url, bool)
        assert sorted((x.source, x.value) for x in record.labels) == [("metric:tests", 0.5), ("thumbs", 1.0)]
        stored = labels(redis_url)
        assert [(x["source"], x.get("comment")) for x in stored] == [
            ("thumbs", "no"),
            ("thumbs", None),
            ("metric:tests", None),
        ]
        assert "sk-alice" not in json.dumps(stored)
        assert stored[0]["key"] == stored[0]["tenant"] == record.labels[0].key != ""
        assert await metric(gear, "bitgear_feedback_total") == 3


async def test_an_answer_whose_event_is_left_out_is_still_found(bitgear: Start, redis_url: str) -> None:
    async with simulated(FAST, model="g", precision="int8") as int8:
        config = {**PATIENT, "events": {"max_per_s": 1e-6}}
        gear = await bitgear({"int8": int8}, redis_url=redis_url, config=config)
        names = [await asked(gear) for _ in range(3)]
        assert [(await say(gear, {"request_id": name, "thumbs": "up"}))[0] for name in names] == [200] * 3
        assert labels(redis_url, "bitgear:events", b"event") == []


async def test_only_who_asked_may_say_and_only_in_time(bitgear: Start, redis_url: str) -> None:
    async with simulated(FAST, model="g", precision="int8") as int8:
        gear = await bitgear({"int8": int8}, redis_url=redis_url, config=PATIENT)
        name = await asked(gear)
        for headers in (BOB, []):
            status, body = await say(gear, {"request_id": name, "thumbs": "down"}, headers)
            assert (status, body["error"]["code"]) == (404, "request_not_found")
        assert (await say(gear, {"request_id": "nobody", "thumbs": "up"}))[0] == 404
        # Another tenant's request of the same id is another request.
        await fetch(gear.url, CHAT_PATH, chat(model="g"), [*BOB, ("x-request-id", name)])
        assert (await say(gear, {"request_id": name, "thumbs": "up"}))[0] == 200
        (key,) = [k for k in (Redis.from_url(redis_url).scan_iter("bitgear:request:*")) if b":" + name.encode() in k][
            :1
        ]
        with Redis.from_url(redis_url) as client:
            assert 86_400 < client.ttl(key) <= 86_400 + 3600
            for one in client.scan_iter("bitgear:request:*"):
                facts = json.loads(client.get(one) or b"")
                client.set(one, json.dumps({**facts, "t": facts["t"] - 86_401}))
        status, body = await say(gear, {"request_id": name, "score": 1})
        assert (status, body["error"]["code"]) == (410, "feedback_too_late")
        answer = await fetch(gear.url, FEEDBACK, b"{", ALICE)
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (400, "invalid_json")
        assert (await fetch(gear.url, FEEDBACK, b" " * 70_000, ALICE)).status == 413
        async with RawClient(gear.url) as raw:
            await raw.request("GET", FEEDBACK)
            assert (await raw.answer()).status == 405
        assert [x["value"] for x in labels(redis_url)] == [1.0]


async def test_without_redis_nothing_is_pretended(bitgear: Start, tmp_path: Any) -> None:
    async with simulated(FAST, model="g", precision="int8") as int8:
        server = PrivateValkey(tmp_path / "valkey")
        server.start()
        try:
            gear = await bitgear({"int8": int8}, redis_url=server.url, config=PATIENT)
            name = await asked(gear)
            assert (await say(gear, {"request_id": name, "thumbs": "up"}))[0] == 200
        finally:
            server.stop()
        answer = await fetch(gear.url, FEEDBACK, {"request_id": name, "thumbs": "down"}, ALICE)
        assert (answer.status, answer.head.get("retry-after")) == (503, "2")
        assert json.loads(answer.body)["error"]["code"] == "feedback_unavailable"
        bare = await bitgear({"int8": int8})
        assert (await say(bare, {"request_id": name, "thumbs": "up"}))[1]["error"]["code"] == "feedback_off"


async def test_asking_again_and_leaving_early_are_weak_words(
    bitgear: Start, redis_url: str, up: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": up.url}, redis_url=redis_url, config=PATIENT)
    up.always([Send(json_response(WIRE.answer("four")))])
    first = await asked(gear)
    await asked(gear, headers=BOB)
    await asked(gear, temperature=0)
    await asked(gear, temperature=0)
    second = await asked(gear)
    pieces = response([WIRE.role(), WIRE.content("fo"), WIRE.content("ur")])
    up.always([*sends(pieces[:3]), Hang()])
    async with RawClient(gear.url) as client:
        await client.request("POST", CHAT_PATH, chat(model="g", stream=True, user="x"), ALICE)
        answer = Answer(await client.head())
        await leave_after(client, answer, lambda body: b"fo" in body)
    await settled(gear, up)
    await until(lambda: len(labels(redis_url)) == 2)
    found = {x["source"]: x for x in labels(redis_url)}
    assert set(found) == {"implicit:regeneration", "implicit:early_stop"}
    assert found["implicit:regeneration"]["id"] == first != second
    assert {x["value"] for x in found.values()} == {0.0}
    assert "four" not in json.dumps(list(found.values()))


def says(text: str) -> Callable[[Exchange], list[Step]]:
    return lambda _: [Send(json_response(WIRE.answer(text)))]


SHADOW: dict[str, Any] = {
    **PATIENT,
    "shadow": {"share": 1.0, "lower_share": 1.0, "max_running": 2},
    "thresholds": {"int8": 1.0},
}


async def test_a_lower_precisions_answer_is_compared_off_the_hot_path(
    bitgear: Start, redis_url: str, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": up.url, "int8": other.url}, redis_url=redis_url, config=SHADOW)
    up.choose, other.choose = says("#### 4"), says("#### 5")
    name = await asked(gear, headers=[*ALICE, ("x-bitgear-scenario", "edge")], stream=False)
    (record,) = await records(redis_url, lambda found: bool(found and found[0].labels))
    assert (record.id, record.variant) == (name, "int8")
    assert [(x.source, x.value, x.reference, x.key) for x in record.labels] == [("shadow:choice", 0.0, 1.0, "")]
    sent = up.exchanges[-1]
    assert json.loads(sent.body)["max_tokens"] == 1024
    assert "stream" not in json.loads(sent.body)
    assert "sk-alice" not in str(sent.headers)
    assert (await say(gear, {"request_id": name, "thumbs": "down"}))[0] == 200
    (told,) = await records(redis_url, lambda found: len(found[0].labels) == 2)
    assert [(a.judge, a.pairs, a.agreed) for a in agreements([told])] == [("shadow:choice", 1, 1.0)]
    assert "4" not in {str(x.get("text")) for x in labels(redis_url)}
    assert await metric(gear, "bitgear_shadow_pairs_total") == 1


async def test_a_canarys_requests_are_compared_more_often_and_count_so_much_less(
    bitgear: Start, redis_url: str, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    # Drawn once in ten million; a canary's always, as long as the rate allows.
    config = {
        **SHADOW,
        "shadow": {"share": 1e-7, "trial_per_s": 1000.0, "max_running": 8},
        # The same question again says something by itself.
        "feedback": {"regeneration_s": 0},
    }
    gear = await bitgear({"fp16": up.url, "int8": other.url}, redis_url=redis_url, config=config)
    up.choose, other.choose = says("Paris"), says("Rome")
    edge = [*ALICE, ("x-bitgear-scenario", "edge")]
    for _ in range(3):
        await asked(gear, headers=edge)
    group = gear.worker.fleet.groups["g"]
    group.canary = CanaryArm(1.0, {"int8": 1.0}, "1-canary")
    for _ in range(3):
        await asked(gear, headers=edge)
    found = await records(redis_url, lambda seen: len(seen) == 6 and sum(bool(r.labels) for r in seen) >= 3)
    assert {(r.arm, x.propensity) for r in found for x in r.labels} == {("canary", 1.0)}
    assert sum(bool(r.labels) for r in found) == 3
    # Over the rate they are drawn as all others are.
    busy = await bitgear(
        {"fp16": up.url, "int8": other.url},
        redis_url=redis_url,
        config={**SHADOW, "shadow": {"share": 1e-7, "trial_per_s": 0.0}},
    )
    busy.worker.fleet.groups["g"].canary = CanaryArm(1.0, {"int8": 1.0}, "1-canary")
    for _ in range(3):
        await asked(busy, headers=edge)
    assert busy.worker.quality.shadow.drawn_on_trial == 1


async def test_full_precisions_answer_is_compared_with_a_lower_one(
    bitgear: Start, redis_url: str, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    config = {**SHADOW, "thresholds": {"int8": 0.0}}
    gear = await bitgear({"fp16": up.url, "int8": other.url}, redis_url=redis_url, config=config)
    up.choose, other.choose = says("Paris"), says("paris.")
    await asked(gear)
    (record,) = await records(redis_url, lambda found: bool(found and found[0].others))
    assert (record.variant, record.labels) == ("fp16", ())
    assert [(x.source, x.value, x.reference, x.variant) for x in record.others] == [("shadow:match", 1.0, 1.0, "int8")]


async def test_where_there_is_no_room_samples_are_let_go_and_counted(
    bitgear: Start, redis_url: str, up: ScriptedUpstream, other: ScriptedUpstream
) -> None:
    config = {**SHADOW, "shadow": {**SHADOW["shadow"], "max_running": 1}}
    gear = await bitgear({"fp16": up.url, "int8": other.url}, redis_url=redis_url, config=config)
    other.choose = says("4")
    up.choose = lambda _: [Hang()]
    edge = [*ALICE, ("x-bitgear-scenario", "edge")]
    await asked(gear, headers=edge)
    await until(lambda: gear.worker.quality.shadow.running == 1)
    await asked(gear, headers=edge)
    await until(lambda: up.running == 1)
    assert await metric(gear, "bitgear_shadow_let_go_total") == 1
    # Pinned, several answers, embeddings: never compared.
    await asked(gear, headers=[*edge, ("x-bitgear-precision", "int8")])
    await asked(gear, headers=edge, n=2)
    assert await metric(gear, "bitgear_shadow_let_go_total") == 1


async def test_exploration_is_told_with_its_propensities(bitgear: Start, redis_url: str) -> None:
    async with (
        simulated(FAST, model="g", precision="fp16") as fp16,
        simulated(FAST, model="g", precision="int8") as int8,
        simulated(FAST, model="g", precision="int4") as int4,
    ):
        config = {**PATIENT, "exploration": {"share": 0.2, "max_risk": 1.0}, "cache": {"enabled": False}}
        gear = await bitgear({"fp16": fp16, "int8": int8, "int4": int4}, redis_url=redis_url, config=config)
        for _ in range(60):
            await asked(gear, max_tokens=1)
        found = await records(redis_url, lambda some: len(some) == 60)
        for record in found:
            chances = {o.variant: o.propensity for o in record.options}
            assert abs(sum(chances.values()) - 1.0) < 1e-9
            assert min(chances.values()) == pytest.approx(0.2 / 3)
            if not record.explored:
                assert chances[record.variant] == pytest.approx(0.8 + 0.2 / 3)
        events = labels(redis_url, "bitgear:events", b"event")
        explored = [e for e in events if e["dice"] < 0.2]
        assert {e["id"] for e in explored} == {r.id for r in found if r.explored}
        assert all(e["reason"] == "explored" for e in explored if e["propensity"] < 0.5)


async def test_a_flood_of_feedback_is_bounded_and_keeps_nobody_else_out(
    bitgear: Start, up: ScriptedUpstream, redis_url: str
) -> None:
    up.always([Send(json_response(WIRE.answer()))])
    gear = await bitgear({"fp16": up.url}, redis_url=redis_url, config={**PATIENT, "server": {"max_concurrent": 400}})
    known = await asked(gear)
    # What nobody knows is looked for several times, over half a second: the dearest that can be said.
    flood = [
        asyncio.create_task(say(gear, {"request_id": f"unknown-{n}", "thumbs": "up"})) for n in range(3 * MOST_AT_ONCE)
    ]
    await until(lambda: gear.worker.app.inflight >= MOST_AT_ONCE)
    began = time.monotonic()
    assert await asked(gear)
    found = await asyncio.gather(*flood)
    statuses = [status for status, _ in found]
    assert statuses.count(429) >= MOST_AT_ONCE
    assert statuses.count(404) >= MOST_AT_ONCE // 2
    assert set(statuses) == {404, 429}
    assert {b["error"]["code"] for s, b in found if s == 429} == {"too_much_feedback"}
    assert time.monotonic() - began < 60
    assert (await say(gear, {"request_id": known, "thumbs": "up"}))[0] == 200
    assert gear.worker.app.inflight == 0


async def test_one_answer_takes_so_many_statements_and_no_more(bitgear: Start, redis_url: str) -> None:
    async with simulated(FAST, model="g", precision="int8") as int8:
        # Of a flood that one key made of one answer, the stream would keep nobody else's words.
        config = {**PATIENT, "feedback": {"max_length": 100}}
        gear = await bitgear({"int8": int8}, redis_url=redis_url, config=config)
        mine, theirs = await asked(gear), await asked(gear, headers=BOB)
        assert (await say(gear, {"request_id": theirs, "thumbs": "down"}, BOB))[0] == 200
        answers = [await say(gear, {"request_id": mine, "score": i / 400}) for i in range(400)]
        taken = [status for status, _ in answers].count(200)
        assert 16 <= taken < 100
        assert {(status, body["error"]["code"]) for status, body in answers[taken:]} == {(400, "too_many_statements")}
        assert [x["id"] for x in labels(redis_url)].count(theirs) == 1
        # What was said last is not said anew.
        assert (await say(gear, {"request_id": mine, "score": (taken - 1) / 400}))[1]["changed"] is False

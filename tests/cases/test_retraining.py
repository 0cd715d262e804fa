"""A group's classifier learns from its own traffic: pairs of answers, a job in its own process, a version, and back."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import orjson
import pytest
from redis.asyncio import Redis

from router.control.store import ControlStore
from router.tuning.jobs import Jobs
from router.tuning.report import markdown
from router.tuning.service import TuningService
from tests.cases.helpers import CHAT_PATH, Start
from tests.conftest import until
from tests.support.client import chat, fetch
from tests.support.script import Exchange, Script, Send
from tests.support.upstream import ScriptedUpstream
from tests.support.wire import ChatWire, json_response

WORDS = ("valley", "house", "proof", "river", "list", "total", "angle", "tree", "price", "cat", "sum", "cost", "sort")
CONFIG: dict[str, Any] = {
    "thresholds": {"int4": 0.9},
    "scenarios": {"realtime": {"ttft_ms": 60000, "e2e_ms": None, "prefer": "lowest_precision"}},
    "cache": {"enabled": False},
    "redis": {"timeout_s": 10},
    "exploration": {"share": 0.0},
    "shadow": {"share": 1.0, "judges": ["match"], "max_running": 8, "max_load": 1.0},
    # So wide a margin that the guard leaves thresholds alone while pairs are gathered.
    "tuning": {"mode": "automatic", "interval_s": 3600, "margin": 0.9, "inner_loop": {"enabled": False}},
}


def prompt(rng: random.Random, hard: bool) -> str:
    words = rng.choices(WORDS, k=rng.randint(15, 40))
    return " ".join(words) + ("? " + "x = y + z; " * rng.randint(4, 9) if hard else ".")


def wrong_at_sums(rng: random.Random) -> Any:
    """INT4's answers: as full precision's, but mostly wrong where the prompt holds equations."""

    def choose(exchange: Exchange) -> Script:
        asked = json.loads(exchange.body)["messages"][-1]["content"]
        wrong = rng.random() < (0.8 if "=" in asked else 0.05)
        return [Send(json_response(ChatWire("g").answer("no" if wrong else "yes")))]

    return choose


@pytest.mark.soak
async def test_pairs_of_answers_become_a_classifier_that_is_explained_and_rolled_back(
    bitgear: Start, redis_url: str
) -> None:
    rng = random.Random(5)
    async with ScriptedUpstream("g") as full, ScriptedUpstream("g") as low, Redis.from_url(redis_url) as client:
        full.always([Send(json_response(ChatWire("g").answer("yes")))])
        low.choose = wrong_at_sums(rng)
        gear = await bitgear({"fp16": full.url, "int4": low.url}, config=CONFIG, redis_url=redis_url)
        shadow = gear.worker.quality.shadow

        async def ask(hard: bool) -> None:
            said = chat(model="g", messages=[{"role": "user", "content": prompt(rng, hard)}])
            assert (await fetch(gear.url, CHAT_PATH, said)).status == 200

        entries: list[dict[str, Any]] = []
        async with asyncio.timeout(120):
            # A busy machine lets some go.
            while len(entries) < 250:
                for hard in (True, False) * 10:
                    await until(lambda: shadow.running < 4)
                    await ask(hard)
                rows = await client.xrange("bitgear:feedback")
                entries = [e for e in (orjson.loads(fields[b"feedback"]) for _, fields in rows) if e.get("seen")]
        # Numbers alone are kept: nothing of what was said.
        assert not any(word.encode() in orjson.dumps(entries) for word in WORDS)

        jobs = Jobs(client)
        service = TuningService(jobs, ControlStore(client), {"g"})

        async def done(name: str) -> dict[str, Any]:
            async with asyncio.timeout(120):
                while (job := await jobs.load(name)) is None:
                    await asyncio.sleep(0.05)
            return job

        tried = await done((await service.start("g", "test", dry_run=True, kind="classifier"))["job"])
        assert tried["status"] == "dry_run", tried["reason"]
        assert gear.worker.serving.document.version == 0
        job = await done((await service.start("g", "test", kind="classifier"))["job"])
        assert job["status"] == "published", job["reason"]
        await until(lambda: "g" in gear.worker.serving.classifiers)
        own = gear.worker.serving.classifiers["g"]
        assert own.artefact.content["sha256"] == job["classifier"]

        def risk(hard: bool) -> float:
            body = {"messages": [{"role": "user", "content": prompt(rng, hard)}]}
            return float(own.risk(body).by_precision["int4"])

        hard, easy = [risk(True) for _ in range(30)], [risk(False) for _ in range(30)]
        assert sum(hard) / 30 > 0.5
        assert sum(easy) / 30 < 0.25
        text = markdown(job)
        assert "held-out pairs" in text
        assert own.artefact.version in text

        # What another classifier saw teaches nothing more.
        again = await done((await service.start("g", "test", kind="classifier"))["job"])
        assert again["status"] == "refused"
        assert again["report"]["classifier"]["read"]["of_other_classifiers"] >= 250
        store = ControlStore(client)
        await store.publish((await store.current()).model_copy(update={"groups": {}}), expected=1)
        await until(lambda: gear.worker.serving.classifiers == {})


async def test_a_proposal_waits_for_a_person_and_pairs_without_numbers_teach_nothing(
    bitgear: Start, redis_url: str
) -> None:
    config = {**CONFIG, "shadow": {**CONFIG["shadow"], "features": False}}
    async with ScriptedUpstream("g") as full, ScriptedUpstream("g") as low, Redis.from_url(redis_url) as client:
        for upstream in (full, low):
            upstream.always([Send(json_response(ChatWire("g").answer("yes")))])
        gear = await bitgear({"fp16": full.url, "int4": low.url}, config=config, redis_url=redis_url)
        assert (await fetch(gear.url, CHAT_PATH, chat(model="g"))).status == 200
        async with asyncio.timeout(60):
            while not (rows := await client.xrange("bitgear:feedback")):
                await asyncio.sleep(0.05)
        assert "seen" not in orjson.loads(rows[0][1][b"feedback"])

"""The whole loop once on simulated variants: traffic, feedback, a job in its own process, a published and explained version."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from redis.asyncio import Redis

from backends.settings import SimulatorSettings
from backends.simulator import simulated
from router.tuning.dataset import read_records
from router.tuning.jobs import Jobs
from router.tuning.report import markdown
from tests.cases.helpers import CHAT_PATH, Start
from tests.conftest import Bitgear, until
from tests.support.client import chat, fetch

FAST = SimulatorSettings(time_scale=0)
CONFIG: dict[str, Any] = {
    "thresholds": {"int4": 1.0},
    # Equal speeds: the lowest allowed precision answers.
    "scenarios": {"realtime": {"ttft_ms": 60000, "e2e_ms": None, "prefer": "lowest_precision"}},
    "cache": {"enabled": False},
    # A loaded machine is no Redis that is away.
    "redis": {"timeout_s": 10},
    "exploration": {"share": 0.0},
    "shadow": {"share": 0.0},
    "tuning": {
        "mode": "automatic",
        "min_records": 40,
        "min_labels": 20,
        "cooldown_s": 0,
        "max_weight_per_key": 1.0,
        "inner_loop": {"enabled": False},
    },
}


async def judged(gear: Bitgear, score: float, headers: list[tuple[str, str]]) -> None:
    answer = await fetch(gear.url, CHAT_PATH, chat(model="g"), headers)
    assert answer.status == 200
    name = answer.head.get("x-request-id")
    told = await fetch(gear.url, "/v1/feedback", {"request_id": name, "score": score}, headers)
    assert told.status == 200


async def test_bad_feedback_on_int4_becomes_a_version_that_says_why(bitgear: Start, redis_url: str) -> None:
    async with (
        simulated(FAST, model="g", precision="fp16") as fp16,
        simulated(FAST, model="g", precision="int4") as int4,
    ):
        gear = await bitgear({"fp16": fp16, "int4": int4}, config=CONFIG, redis_url=redis_url)
        group = gear.worker.fleet.groups["g"]
        assert group.thresholds["int4"] == 1.0
        full = [("x-bitgear-max-risk", "0")]
        for i in range(60):
            key = [("authorization", f"Bearer sk-{i % 6}")]
            # Whoever allows no risk is answered by full precision, and is content.
            await (judged(gear, 0.9, [*key, *full]) if i % 2 else judged(gear, 0.1, key))
        async with asyncio.timeout(60), Redis.from_url(redis_url) as client:
            while True:
                found = (await read_records(client, group="g", since=time.time() - 600, limit=1000)).records
                if sum(bool(r.labels) for r in found) == 60:
                    break
                await asyncio.sleep(0.05)
            served = {r.variant for r in found}
            jobs = Jobs(client)
            await jobs.wish("g", "test", False)
            while not (done := [j for j in await jobs.recent("g") if j["status"] == "published"]):
                await asyncio.sleep(0.05)
            job = await jobs.load(done[0]["id"])
        assert job is not None
        assert served == {"fp16", "int4"}
        # The worker follows.
        await until(lambda: gear.worker.fleet.groups["g"].thresholds["int4"] == 0.0)
        assert gear.worker.serving.document.version == job["version"] == 1
        assert job["id"] in gear.worker.serving.document.reason
        answer = await fetch(gear.url, CHAT_PATH, chat(model="g"))
        assert "variant=fp16" in (answer.head.get("x-bitgear-decision") or "")
        text = markdown(job)
        assert "broken, so all the way down" in text
        assert "## Candidates" in text

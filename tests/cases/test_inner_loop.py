"""The fast loop on a running proxy: a burst costs precision before it costs time, and precision comes back."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from backends.settings import SimulatorSettings
from backends.simulator import simulated
from tests.cases.helpers import CHAT_PATH, Start
from tests.conftest import until
from tests.support.client import chat, fetch

SLOW = SimulatorSettings(time_scale=2.0, max_num_seqs=4, mean_output_tokens=32)
"""Four at once, half a second each: what comes above that waits."""
QUICK = SimulatorSettings(time_scale=0.1, max_num_seqs=64, mean_output_tokens=32)
CONFIG: dict[str, Any] = {
    # Only thresholds decide who leaves full precision.
    "scenarios": {"realtime": {"ttft_ms": None, "e2e_ms": 8000, "gives_way": "speed", "prefer": "lowest_precision"}},
    "cache": {"enabled": False},
    "tuning": {"inner_loop": {"interval_s": 0.1, "gain": 2.0, "integral_s": 1.0}},
}


# Real time decides who is late: not for a machine whose cores are all taken.
@pytest.mark.soak
async def test_a_burst_costs_precision_before_time_and_precision_comes_back(bitgear: Start, redis_url: str) -> None:
    async with (
        simulated(SLOW, model="g", precision="fp16") as fp16,
        simulated(QUICK, model="g", precision="int4") as int4,
    ):
        gear = await bitgear({"fp16": fp16, "int4": int4}, config=CONFIG, redis_url=redis_url)
        order = {"thresholds": {"int4": 0.0}, "bounds": {"int4": [0.9, 0.1]}}
        put = "/admin/groups/g/thresholds"
        assert (await fetch(gear.admin_url, put, order, method="PUT")).status == 422
        order["bounds"] = {"int4": [0.0, 1.0]}
        assert (await fetch(gear.admin_url, put, order, method="PUT")).status == 200

        def threshold() -> float:
            return float(gear.worker.fleet.groups["g"].thresholds["int4"])

        ended = asyncio.Event()
        seen: list[tuple[str, float]] = []

        async def client() -> None:
            while not ended.is_set():
                began = time.monotonic()
                answer = await fetch(gear.url, CHAT_PATH, chat(model="g", max_tokens=32), timeout=60)
                assert answer.status == 200
                seen.append((answer.head.get("x-bitgear-decision") or "", time.monotonic() - began))

        # Calm: one request at a time is all full precision's, once the loop has come down to its lower bound.
        clients = [asyncio.create_task(client())]
        await until(
            lambda: threshold() == 0.0 and len(seen) >= 3 and all("variant=fp16" in how for how, _ in seen[-3:]), 30
        )
        count = len(seen)
        # The burst grows; thresholds open, and int4 answers, before anybody is late.
        try:
            while not any("variant=int4" in how for how, _ in seen[count:]):
                assert len(clients) < 80
                clients += [asyncio.create_task(client()) for _ in range(4)]
                await asyncio.sleep(0.25)
            # It may have closed again by now: int4 has taken what waited.
            opened = [how for how, _ in seen[count:] if "variant=int4" in how]
            assert all(float(how.partition("threshold=")[2].partition(";")[0]) > 0.0 for how in opened)
            assert all(seconds < 8.0 for _, seconds in seen)
        finally:
            ended.set()
            await asyncio.gather(*clients)
        # After it precision comes back, and the next request is full precision's again.
        await until(lambda: threshold() == 0.0)
        answer = await fetch(gear.url, CHAT_PATH, chat(model="g", max_tokens=32), timeout=60)
        assert "variant=fp16" in (answer.head.get("x-bitgear-decision") or "")

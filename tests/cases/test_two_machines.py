"""Two machines' worth of workers on one Redis: they agree on a change within 2 s, lose no request, and remember it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cases.helpers import CHAT_PATH, WIRE
from tests.cases.machine import Machine
from tests.support.client import RawClient, chat, fetch
from tests.support.upstream import ScriptedUpstream, Send
from tests.support.wire import json_response

AGREE_S = 2.0


class Seen(NamedTuple):
    began: float
    machine: int
    status: int
    policy: str


async def load(machines: list[Machine], number: int, seen: list[Seen], done: asyncio.Event) -> None:
    """Requests to one machine, each on a connection of its own, so that both workers get some."""
    while not done.is_set():
        began = time.monotonic()
        async with RawClient(machines[number].api) as client:
            await client.request("POST", CHAT_PATH, chat(model="g"))
            answer = await client.answer(timeout=60)
        decision = answer.head.get("x-bitgear-decision") or ""
        policy = decision.partition("policy=")[2].partition(";")[0]
        seen.append(Seen(began, number, answer.status, policy))


@pytest.mark.soak
async def test_two_machines_agree_within_2_s_under_load_and_remember(tmp_path: Path, redis_url: str) -> None:
    async with ScriptedUpstream("g") as up:
        up.always([Send(json_response(WIRE.answer()))])
        machines = [Machine(tmp_path / str(n), up.url, redis_url) for n in range(2)]
        try:
            await asyncio.gather(*(m.start() for m in machines))
            seen: list[Seen] = []
            done = asyncio.Event()
            clients = [asyncio.create_task(load(machines, n % 2, seen, done)) for n in range(4)]
            async with asyncio.timeout(60):
                while {s.machine for s in seen} != {0, 1}:
                    await asyncio.sleep(0.01)
            patch = {"thresholds": {"int8": 0.3}}
            made = await fetch(
                machines[0].admin, "/admin/config", patch, [("if-match", '"0"')], method="PATCH", timeout=30
            )
            changed = time.monotonic()
            assert made.status == 200, made.body
            async with asyncio.timeout(60):
                while sum(s.began > changed + AGREE_S for s in seen) < 40:
                    await asyncio.sleep(0.01)
            done.set()
            await asyncio.gather(*clients)
            assert {s.status for s in seen} == {200}
            assert {s.policy for s in seen if s.began < changed - 1} <= {"v1"}
            late = [s for s in seen if s.began > changed + AGREE_S]
            assert {(s.machine, s.policy) for s in late} == {(0, "1"), (1, "1")}
            # A machine that starts anew begins with what was agreed.
            assert await asyncio.to_thread(machines[1].stop) == 0
            (tmp_path / "1" / "out.txt").unlink()
            await machines[1].start()
            status = (await fetch(machines[1].admin, "/admin/status", timeout=30)).json()
            assert (status["policy_version"], status["control"]["version"]) == ("1", 1)
        finally:
            for machine in machines:
                if hasattr(machine, "process") and machine.process.process.poll() is None:
                    machine.stop()


@pytest.fixture(autouse=True)
def _no_settings_of_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BITGEAR_CONFIG", raising=False)

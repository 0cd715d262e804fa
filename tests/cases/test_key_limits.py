"""A key's requests at once, over two worker processes: one limit, given back by clients that leave and workers that die."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from redis import Redis

from router.keys.ledger import ALIVE_S, PREFIX, WORKERS
from router.keys.record import digest
from tests.cases.helpers import CHAT_PATH, WIRE, ask
from tests.cases.machine import Machine
from tests.support.client import RawClient
from tests.support.upstream import Hang, ScriptedUpstream, Send
from tests.support.wire import response

KEY = "sk-bg-test"
SHORT_OF_TOKENS = "sk-bg-short"
LIMIT = 4
HEAD, ROLE, FIRST, *_ = response(WIRE.stream(["Hel", "lo"]))


class Streams:
    """Streams of one key that the upstream never ends, each on a connection of its own."""

    def __init__(self, url: str, key: str = KEY) -> None:
        self._url = url
        self._key = key
        self.waits: list[int] = []
        """What those that were refused were told, seconds."""
        self.open: list[RawClient] = []

    async def ask(self, times: int) -> list[int]:
        """Return the statuses of so many requests at once; what is let in stays open."""
        return await asyncio.gather(*(self._one() for _ in range(times)))

    async def _one(self) -> int:
        client = RawClient(self._url)
        await client.connect()
        await client.request("POST", CHAT_PATH, ask(), [("authorization", f"Bearer {self._key}")])
        answer = await client.read_until(lambda body: b"data:" in body, 60)
        if answer.status == 200:
            self.open.append(client)
            return 200
        if answer.status == 429:
            assert answer.json()["error"]["code"] == "rate_limit_exceeded"
            self.waits.append(int(answer.head.get("retry-after") or 0))
        client.close()
        return answer.status

    def cut(self) -> None:
        for client in self.open:
            client.close()
        self.open.clear()

    async def fill(self, places: int) -> None:
        """Return when all places are taken. Raises TimeoutError."""
        async with asyncio.timeout(60):
            while len(self.open) < places:
                await self.ask(3 * places)
        assert len(self.open) == places


def running(url: str) -> list[int]:
    """What each worker runs for the key."""
    with Redis.from_url(url) as client:
        fields: Sequence[bytes] = client.hvals(f"{PREFIX}:{digest(KEY.encode())}")
    return sorted(int(field.split()[0]) for field in fields)


async def all_workers_refuse(streams: Streams) -> None:
    """Return when the key is in debt at each worker, the same debt."""
    try:
        async with asyncio.timeout(60):
            while True:
                streams.waits.clear()
                refused = 200 not in await streams.ask(8)
                # Those who refuse hear again; by then all say the same.
                if refused and max(streams.waits) - min(streams.waits) <= 1:
                    break
        # One request for each worker, at most: it is in debt at once, and a token comes back in a minute.
        assert 1 <= len(streams.open) <= 2
        assert min(streams.waits) > 60 * 100
    finally:
        streams.cut()


@pytest.mark.soak
async def test_one_limit_for_all_workers_and_no_place_is_lost(tmp_path: Path, redis_url: str) -> None:
    async with ScriptedUpstream("g") as up:
        up.always([Send(HEAD), Send(ROLE), Send(FIRST), Hang()])
        keys = {
            "app": {"sha256": digest(KEY.encode()), "max_concurrent": LIMIT},
            "short": {"sha256": digest(SHORT_OF_TOKENS.encode()), "tokens_per_minute": 1},
        }
        machine = Machine(tmp_path, up.url, redis_url, keys=keys)
        await machine.start()
        streams = Streams(machine.api)
        try:
            async with asyncio.timeout(60):
                while len([n for n in running(redis_url) if n]) < 2:
                    streams.cut()
                    # At once, and both workers let some in: exactly as many as the limit says, and no place lost.
                    await streams.fill(LIMIT)
            assert sum(running(redis_url)) == LIMIT == up.running
            streams.cut()
            began = time.monotonic()
            await streams.fill(LIMIT)
            assert time.monotonic() - began < 5
            assert set(streams.waits) == {1}
            await all_workers_refuse(Streams(machine.api, SHORT_OF_TOKENS))
            workers = [p for p in machine.process.family() if "router.worker" in " ".join(p.cmdline())]
            assert len(workers) == 2
            for worker in workers:
                os.kill(worker.pid, signal.SIGKILL)
            streams.cut()
            with Redis.from_url(redis_url) as client:
                # As if they had been silent for that long. Others come in their place, and know nothing of them.
                for name in client.zrange(WORKERS, 0, -1):
                    client.zincrby(WORKERS, -ALIVE_S, name)
            await streams.fill(LIMIT)
        finally:
            streams.cut()
            machine.stop()


@pytest.fixture(autouse=True)
def _no_settings_of_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BITGEAR_CONFIG", raising=False)

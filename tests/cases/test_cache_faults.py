"""Case 10 on a real Valkey server: whatever becomes of Redis, requests go on, are told once, and it comes back alone."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from router.store.valkey import PrivateValkey
from tests.cases.helpers import CHAT_PATH, WIRE, Start, settled
from tests.conftest import Bitgear, until
from tests.support.client import Answer, chat, fetch
from tests.support.upstream import ScriptedUpstream, Send, Step
from tests.support.wire import json_response

pytestmark = pytest.mark.timing

PLAIN: list[Step] = [Send(json_response(WIRE.answer("four")))]
TIMEOUT_S = 0.2
CONFIG = {"cache": {"timeout_ms": TIMEOUT_S * 1000}, "events": {"enabled": False}}
SLACK_S = 1.0
"""For a busy machine; far below what a hanging Redis costs without a bound."""


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[PrivateValkey]:
    server = PrivateValkey(tmp_path / "state", max_memory_mib=4)
    server.start()
    yield server
    if server.pid is not None:
        os.kill(server.pid, signal.SIGCONT)
    server.stop()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="bitgear")
    return caplog


def about_cache(lines: pytest.LogCaptureFixture, since: int = 0) -> list[str]:
    """What was said of the cache after the first `since` lines: on a busy machine it may start away and come back."""
    return [r.getMessage() for r in lines.records if r.getMessage().startswith("cache:")][since:]


async def ask(gear: Bitgear, text: str = "2+2?", **more: Any) -> tuple[str, float]:
    began = time.monotonic()
    answer: Answer = await fetch(gear.url, CHAT_PATH, chat(text, model="g", temperature=0, **more))
    took = time.monotonic() - began
    assert answer.status == 200
    assert b"four" in answer.body
    await settled(gear)
    return (answer.head.get("x-bitgear-cache") or "").split(";")[0], took


async def state(gear: Bitgear, wanted: str) -> None:
    await until(lambda: gear.worker.caching.store.state == wanted)


async def test_starts_without_redis_and_finds_it_later(
    bitgear: Start, up: ScriptedUpstream, tmp_path: Path, lines: pytest.LogCaptureFixture
) -> None:
    server = PrivateValkey(tmp_path / "later")
    server.start()
    url = server.url
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    await until(lambda: not server.running)
    up.always(PLAIN)
    gear = await bitgear({"fp16": up.url}, redis_url=url, config=CONFIG)
    await state(gear, "down")
    seen = [await ask(gear) for _ in range(20)]
    assert {what for what, _ in seen} == {"bypass"}
    assert max(took for _, took in seen) < SLACK_S
    server.start()
    try:
        await state(gear, "up")
        assert [(await ask(gear))[0] for _ in range(2)] == ["miss", "hit"]
    finally:
        server.stop()
    first, second = about_cache(lines)[:2]
    assert "is away" in first
    assert "is back" in second


async def test_killed_and_restarted(
    bitgear: Start, up: ScriptedUpstream, valkey: PrivateValkey, lines: pytest.LogCaptureFixture
) -> None:
    up.always(PLAIN)
    gear = await bitgear({"fp16": up.url}, redis_url=valkey.url, config=CONFIG)
    await state(gear, "up")
    assert [(await ask(gear))[0] for _ in range(2)] == ["miss", "hit"]
    assert valkey.pid is not None
    said = len(about_cache(lines))
    os.kill(valkey.pid, signal.SIGKILL)
    await until(lambda: not valkey.running)
    seen = [await ask(gear) for _ in range(30)]
    assert max(took for _, took in seen) < SLACK_S
    assert seen[-1][0] == "bypass"
    await state(gear, "down")
    valkey.start()
    await state(gear, "up")
    assert [("away" in line, "back" in line) for line in about_cache(lines, said)] == [(True, False), (False, True)]
    assert [(await ask(gear))[0] for _ in range(2)] == ["miss", "hit"]
    assert not any(r.exc_info for r in lines.records)


async def test_a_hanging_server_costs_one_timeout_once(
    bitgear: Start, up: ScriptedUpstream, valkey: PrivateValkey, lines: pytest.LogCaptureFixture
) -> None:
    up.always(PLAIN)
    gear = await bitgear({"fp16": up.url}, redis_url=valkey.url, config=CONFIG)
    await state(gear, "up")
    assert valkey.pid is not None
    said = len(about_cache(lines))
    os.kill(valkey.pid, signal.SIGSTOP)
    together = await asyncio.gather(*(fetch(gear.url, CHAT_PATH, chat(f"n{n}", model="g", seed=n)) for n in range(20)))
    assert {a.status for a in together} == {200}
    await state(gear, "down")
    later = [await ask(gear, f"later {n}") for n in range(30)]
    assert sum(took for _, took in later) < 30 * TIMEOUT_S / 2
    assert {what for what, _ in later} == {"bypass"}
    assert ["away" in line for line in about_cache(lines, said)] == [True]
    os.kill(valkey.pid, signal.SIGCONT)
    await state(gear, "up")
    assert ["back" in line for line in about_cache(lines, said)] == [False, True]
    assert [(await ask(gear, "new"))[0] for _ in range(2)] == ["miss", "hit"]
    assert not any(r.exc_info for r in lines.records)


async def test_requests_in_the_air_when_it_hangs_wait_one_timeout_at_most(
    bitgear: Start, up: ScriptedUpstream, valkey: PrivateValkey
) -> None:
    up.always(PLAIN)
    gear = await bitgear({"fp16": up.url}, redis_url=valkey.url, config=CONFIG)
    await state(gear, "up")
    assert valkey.pid is not None
    os.kill(valkey.pid, signal.SIGSTOP)
    _, took = await ask(gear)
    assert took < TIMEOUT_S + SLACK_S


async def test_slow_beyond_the_timeout_is_as_good_as_away(
    bitgear: Start, up: ScriptedUpstream, valkey: PrivateValkey
) -> None:
    up.always(PLAIN)
    gear = await bitgear({"fp16": up.url}, redis_url=valkey.url, config=CONFIG)
    await state(gear, "up")
    slow = asyncio.create_task(asyncio.to_thread(_sleep_inside, valkey.url, 1.0))
    await asyncio.sleep(0.1)
    seen = [await ask(gear, f"n{n}") for n in range(10)]
    assert sum(took > TIMEOUT_S for _, took in seen) <= 1
    assert max(took for _, took in seen) < TIMEOUT_S + SLACK_S
    await slow
    await state(gear, "up")


def _sleep_inside(url: str, seconds: float) -> None:
    # A script holds the whole server, as a slow command does.
    with Redis.from_url(url, socket_timeout=30) as client:
        client.config_set("busy-reply-threshold", 60_000)
        script = "local e = os.clock() + ARGV[1] while os.clock() < e do end"
        client.eval(script, 0, seconds)


async def written(gear: Bitgear) -> None:
    """Wait for the first entry: the clients of these tests hold the loop, which would write it a moment later."""
    await until(lambda: gear.worker.caching.stats().bytes_written > 0)


async def test_out_of_memory_keeps_reading_and_says_so_once(
    bitgear: Start, up: ScriptedUpstream, valkey: PrivateValkey, lines: pytest.LogCaptureFixture
) -> None:
    up.always(PLAIN)
    gear = await bitgear({"fp16": up.url}, redis_url=valkey.url, config=CONFIG)
    await state(gear, "up")
    assert (await ask(gear, "kept"))[0] == "miss"
    store = gear.worker.caching.store
    await written(gear)
    with Redis.from_url(valkey.url) as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", 1)
        assert (await ask(gear, "kept"))[0] == "hit"
        for n in range(10):
            assert (await ask(gear, f"n{n}"))[0] == "miss"
        await until(lambda: not store.writable)
        assert store.state == "up"
        client.config_set("maxmemory", 0)
        number = iter(range(1000))
        while not store.writable:
            await ask(gear, f"again {next(number)}")
            await asyncio.sleep(0.05)
    assert [(await ask(gear, "now"))[0] for _ in range(2)] == ["miss", "hit"]
    away, back = [line for line in about_cache(lines) if "writes" in line]
    assert "takes no writes" in away
    assert "takes writes again" in back


async def test_read_only_keeps_reading(
    bitgear: Start, up: ScriptedUpstream, valkey: PrivateValkey, lines: pytest.LogCaptureFixture
) -> None:
    up.always(PLAIN)
    gear = await bitgear({"fp16": up.url}, redis_url=valkey.url, config=CONFIG)
    await state(gear, "up")
    assert (await ask(gear, "kept"))[0] == "miss"
    await written(gear)
    with Redis.from_url(valkey.url) as client:
        client.config_set("replica-serve-stale-data", "yes")
        client.replicaof("127.0.0.1", "1")
        assert (await ask(gear, "kept"))[0] == "hit"
        for n in range(5):
            assert (await ask(gear, f"n{n}"))[0] == "miss"
        await until(lambda: not gear.worker.caching.store.writable)
        client.replicaof("NO", "ONE")
    assert len([line for line in about_cache(lines) if "takes no writes" in line]) == 1


async def test_flushed_scripts_are_loaded_again(
    bitgear: Start, up: ScriptedUpstream, valkey: PrivateValkey, lines: pytest.LogCaptureFixture
) -> None:
    up.always(PLAIN)
    gear = await bitgear({"fp16": up.url}, redis_url=valkey.url, config=CONFIG)
    await state(gear, "up")
    said = len(about_cache(lines))
    with Redis.from_url(valkey.url) as client:
        client.script_flush()
    await ask(gear)
    assert (await ask(gear))[0] in ("miss", "hit")
    assert (await ask(gear))[0] == "hit"
    assert about_cache(lines, said) == []


async def test_strange_bytes_under_a_key_are_a_miss(
    bitgear: Start, up: ScriptedUpstream, valkey: PrivateValkey
) -> None:
    up.always(PLAIN)
    gear = await bitgear({"fp16": up.url}, redis_url=valkey.url, config=CONFIG)
    await state(gear, "up")
    await ask(gear)
    await written(gear)
    with Redis.from_url(valkey.url) as client:
        (name,) = client.keys("bitgear:c1:*")
        whole: bytes = client.get(name)  # type: ignore[assignment]
        for strange in (b"", b"x", b"BG\x02" + whole[3:], whole[:-1], whole[:20] + b"\xff" + whole[21:]):
            client.set(name, strange)
            assert (await ask(gear))[0] == "miss"
            assert (await ask(gear))[0] == "hit"
        client.delete(name)
        client.lpush(name, "a list")
    # A key of another type is an error of the server's: the request goes on.
    assert (await ask(gear))[0] in ("miss", "bypass")

"""Events on a real Valkey server that is killed, stopped, restarted, full or read-only: nothing waits, all is counted."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis import Redis

from router.config.loop import FeedbackConfig
from router.config.schema import EventsConfig
from router.feedback.index import RequestIndex
from router.store.events import EventSink, SinkStats
from router.store.valkey import PrivateValkey

SETTINGS = EventsConfig(buffer=500)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PrivateValkey]:
    server = PrivateValkey(tmp_path / "state", max_memory_mib=16)
    server.start()
    yield server
    server.stop()


@asynccontextmanager
async def running(
    url: str | None, settings: EventsConfig = SETTINGS, timeout_s: float = 10, stop_s: float = 0.5
) -> AsyncIterator[EventSink]:
    sink = EventSink(url, settings, timeout_s=timeout_s)
    sink.start()
    try:
        yield sink
    finally:
        await sink.stop(stop_s)


async def until(condition: Callable[[], bool], deadline_s: float = 60) -> None:
    async with asyncio.timeout(deadline_s):
        while not condition():
            await asyncio.sleep(0.01)


def entries(server: PrivateValkey, stream: str = SETTINGS.stream) -> list[dict[str, object]]:
    with Redis.from_url(server.url) as client:
        return [orjson.loads(fields[b"event"]) for _, fields in client.xrange(stream)]


async def test_events_arrive_in_order(server: PrivateValkey) -> None:
    async with running(server.url) as sink:
        for number in range(300):
            sink.put({"n": number, "text": "你好"})
        await until(lambda: sink.stats().written == 300)
        assert sink.stats() == SinkStats(300, 0, 0, "up")
    assert entries(server) == [{"n": n, "text": "你好"} for n in range(300)]


async def test_stop_writes_what_is_kept_and_waits_for_nothing_else(server: PrivateValkey) -> None:
    async with asyncio.timeout(30), running(server.url, stop_s=60) as sink:
        for number in range(200):
            sink.put({"n": number})
    assert sink.stats() == SinkStats(200, 0, 0, "stopped")
    assert len(entries(server)) == 200


async def test_put_after_stop_is_counted(server: PrivateValkey) -> None:
    async with running(server.url) as sink:
        pass
    sink.put({"n": 1})
    assert sink.stats().dropped == 1


async def test_the_stream_is_trimmed(server: PrivateValkey) -> None:
    async with running(server.url, EventsConfig(max_length=100, buffer=4096)) as sink:
        for number in range(3000):
            sink.put({"n": number})
        await until(lambda: sink.stats().written == 3000)
    assert 100 <= len(entries(server)) < 400
    assert entries(server)[-1] == {"n": 2999}


async def test_events_that_wait_take_about_the_memory_of_their_bytes(server: PrivateValkey) -> None:
    sink = EventSink(server.url, EventsConfig(), index=RequestIndex(FeedbackConfig()))
    event = {"id": "a" * 24, "t": 1.0, "tenant": "t", "group": "g", "variant": "int4", "status": 200, "more": "x" * 600}
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(500):
            sink.put(event)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sink.stats().buffered == 500
    assert (after - before) / 500 < 2000
    await sink.stop(deadline_s=0)


async def test_no_redis_and_disabled_keep_nothing(server: PrivateValkey) -> None:
    for url, config in ((None, SETTINGS), (server.url, EventsConfig(enabled=False))):
        async with running(url, config) as sink:
            sink.put({"n": 1})
            assert sink.stats() == SinkStats(0, 0, 0, "off")


async def test_server_killed_and_restarted(server: PrivateValkey, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="router.store.events")
    async with running(server.url) as sink:
        sink.put({"n": 0})
        await until(lambda: sink.stats().written == 1)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        await until(lambda: not server.running)
        for number in range(1, 700):
            sink.put({"n": number})
        await until(lambda: sink.stats().state == "down")
        assert sink.stats().buffered == 500
        assert sink.stats().dropped == 199
        server.start()
        await until(lambda: sink.stats().written == 501)
        assert sink.stats().state == "up"
    assert [e["n"] for e in entries(server)] == list(range(1, 501))
    assert [r.levelname for r in caplog.records] == ["WARNING", "INFO"]
    assert "is away" in caplog.messages[0]
    assert "is back; 199 events dropped" in caplog.messages[1]


@pytest.mark.timing
async def test_server_stopped_hangs_nobody_and_writes_nothing_twice(server: PrivateValkey) -> None:
    async with running(server.url, timeout_s=0.3) as sink:
        sink.put({"n": 0})
        await until(lambda: sink.stats().written == 1)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        try:
            before = time.perf_counter()
            for number in range(1, 400):
                sink.put({"n": number})
            assert time.perf_counter() - before < 0.2, "putting waits"
            await until(lambda: sink.stats().state == "down")
        finally:
            os.kill(server.pid, signal.SIGCONT)
        await until(lambda: sink.stats().written == 400)
    assert [e["n"] for e in entries(server)] == list(range(400))


@pytest.mark.timing
async def test_the_loop_goes_on_while_the_server_hangs(server: PrivateValkey) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    try:
        async with running(server.url, timeout_s=0.3) as sink:
            longest = 0.0
            end = time.monotonic() + 1
            while time.monotonic() < end:
                before = time.perf_counter()
                sink.put({"n": 1})
                await asyncio.sleep(0.001)
                longest = max(longest, time.perf_counter() - before)
            assert longest < 0.25
            before = time.monotonic()
            await sink.stop(0.5)
            assert time.monotonic() - before < 1.5
            assert sink.stats().buffered == 0
            assert sink.stats().dropped > 0
    finally:
        os.kill(server.pid, signal.SIGCONT)


async def test_full_server_is_away_until_there_is_room(server: PrivateValkey, caplog: pytest.LogCaptureFixture) -> None:
    with Redis.from_url(server.url) as client:
        client.config_set("maxmemory", "100mb")
        client.set("big", b"x" * (14 << 20))
        client.config_set("maxmemory", "1mb")
        async with running(server.url) as sink:
            sink.put({"n": 1})
            await until(lambda: sink.stats().state == "down")
            assert sink.stats().buffered == 1
            client.config_set("maxmemory", "100mb")
            await until(lambda: sink.stats().written == 1)
    assert entries(server) == [{"n": 1}]
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 1


async def test_read_only_server_is_away_until_it_takes_writes(server: PrivateValkey) -> None:
    with Redis.from_url(server.url) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        async with running(server.url) as sink:
            sink.put({"n": 1})
            await until(lambda: sink.stats().state == "down")
            client.execute_command("REPLICAOF", "NO", "ONE")
            await until(lambda: sink.stats().written == 1)
    assert entries(server) == [{"n": 1}]


async def test_a_key_of_another_type_under_the_streams_name(server: PrivateValkey) -> None:
    with Redis.from_url(server.url) as client:
        client.set(SETTINGS.stream, "not a stream")
        async with running(server.url) as sink:
            sink.put({"n": 1})
            await until(lambda: sink.stats().state == "down")
            client.delete(SETTINGS.stream)
            await until(lambda: sink.stats().written == 1)
    assert entries(server) == [{"n": 1}]


async def test_starts_without_redis_and_finds_it_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = PrivateValkey(tmp_path / "state")
    url = server.start()
    server.stop()
    async with running(url) as sink:
        await until(lambda: sink.stats().state == "down")
        sink.put({"n": 1})
        await until(lambda: sink.stats().buffered == 1)
    assert sink.stats().dropped == 1
    assert len(caplog.records) == 1


async def test_a_port_that_accepts_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        async with running(f"redis://:secret@127.0.0.1:{mute.getsockname()[1]}/0", timeout_s=0.3) as sink:
            await until(lambda: sink.stats().state == "down")


async def test_passwords_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with running("redis://me:hunter2@127.0.0.1:1/0") as sink:
        await until(lambda: sink.stats().state == "down")
    assert caplog.messages
    assert "hunter2" not in caplog.text


async def test_password_is_used(server: PrivateValkey) -> None:
    with Redis.from_url(server.url) as client:
        client.config_set("requirepass", "hunter2")
    sink = EventSink(server.url, SETTINGS, password="hunter2")
    sink.start()
    sink.put({"n": 1})
    await until(lambda: sink.stats().written == 1)
    await sink.stop()


async def test_a_url_that_is_none() -> None:
    async with running("nonsense") as sink:
        await until(lambda: sink.stats().state == "down")


async def test_events_that_cannot_be_written_are_counted(server: PrivateValkey) -> None:
    async with running(server.url) as sink:
        circular: dict[str, object] = {}
        circular["self"] = circular
        sink.put(circular)
        sink.put({"long": "x" * 40_000})
        sink.put({"lone": "\ud800"})
        sink.put({"odd": object(), 3: float("nan")})  # type: ignore[dict-item]
        await until(lambda: sink.stats().written == 1)
        assert sink.stats().dropped == 3


anything = st.recursive(
    st.one_of(st.none(), st.integers(), st.floats(), st.text(), st.binary(max_size=4)),
    lambda t: st.one_of(st.lists(t, max_size=3), st.dictionaries(st.text(max_size=3), t, max_size=3)),
    max_leaves=10,
)


@settings(max_examples=100, deadline=None)
@given(events=st.lists(st.dictionaries(st.text(max_size=3), anything, max_size=3), max_size=30))
def test_every_event_is_kept_or_counted(events: list[dict[str, object]]) -> None:
    sink = EventSink("redis://127.0.0.1:1", EventsConfig(buffer=16))
    for event in events:
        sink.put(event)
    stats = sink.stats()
    assert stats.buffered + stats.dropped == len(events)
    assert stats.buffered <= 16


async def test_an_event_left_out_is_still_found_and_never_without_bound(server: PrivateValkey) -> None:
    index = RequestIndex(FeedbackConfig(window_s=60))
    sink = EventSink(server.url, EventsConfig(buffer=16), timeout_s=5.0, index=index)
    for number in range(20):
        sink.put_index({"id": f"r{number}", "tenant": "t", "variant": "int8", "status": 200})
    assert sink.stats() == SinkStats(0, 0, 16, "starting", 4)
    sink.start()
    await until(lambda: sink.stats().buffered == 0)
    await sink.stop()
    with Redis.from_url(server.url) as client:
        assert sorted(client.scan_iter("bitgear:request:*")) == sorted(
            f"bitgear:request:t:r{n}".encode() for n in range(16)
        )
        assert client.xlen(SETTINGS.stream) == 0
    assert sink.stats() == SinkStats(0, 0, 0, "stopped", 4)


async def test_without_events_requests_are_still_found(server: PrivateValkey) -> None:
    index = RequestIndex(FeedbackConfig(window_s=60))
    sink = EventSink(server.url, EventsConfig(enabled=False), timeout_s=5.0, index=index)
    sink.start()
    sink.put({"id": "r", "tenant": "t", "variant": "int8", "status": 200})
    index.settings = FeedbackConfig(enabled=False)
    sink.put({"id": "later", "tenant": "t", "variant": "int8", "status": 200})
    await until(lambda: sink.stats().buffered == 0)
    await sink.stop()
    with Redis.from_url(server.url) as client:
        assert list(client.scan_iter("bitgear:request:*")) == [b"bitgear:request:t:r"]
        assert client.xlen(SETTINGS.stream) == 0

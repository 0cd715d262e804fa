"""Following the document: at once, through failures of Redis, through bad documents, through restarts."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from redis.asyncio import Redis

from router.control.document import ControlDocument
from router.control.follow import Follower, Refused
from router.control.store import ControlStore, dump, open_store, parse
from router.keys.record import KeyRecord
from router.store.valkey import PrivateValkey
from tests.conftest import until

LOG = logging.getLogger("control-test")


class Applied:
    """Takes documents; refuses those whose reason is `bad`, fails on `broken`."""

    def __init__(self) -> None:
        self.versions: list[int] = []

    async def __call__(self, document: ControlDocument) -> None:
        if document.reason == "bad":
            raise Refused("thresholds.int8: 7 is not in [0, 1]")
        if document.reason == "broken":
            raise RuntimeError("never mind")
        self.versions.append(document.version)


def follower(
    url: str | None, apply: Callable[[ControlDocument], Awaitable[None]], file: Path | None = None
) -> Follower:
    store = open_store(url, password=None, timeout_s=30) if url else None
    return Follower(store, apply, LOG, file=file, poll_s=0.05, timeout_s=30)


async def test_each_version_is_applied_soon(store: ControlStore, valkey: PrivateValkey) -> None:
    await store.publish(ControlDocument(), expected=0)
    applied = Applied()
    one = follower(valkey.url, applied)
    await one.start()
    # What was there is applied before anything is served.
    assert applied.versions == [1]
    assert one.stats().state == "up"
    await store.publish(ControlDocument(), expected=1)
    await until(lambda: applied.versions == [1, 2])
    assert one.document.version == 2
    await one.stop()
    assert one.stats().state == "stopped"


async def test_a_message_is_enough(store: ControlStore, valkey: PrivateValkey) -> None:
    applied = Applied()
    one = Follower(open_store(valkey.url, password=None, timeout_s=5), applied, LOG, poll_s=3600)
    await one.start()
    version = 0
    async with asyncio.timeout(60):
        # Whether it listens yet, nobody can see.
        while not applied.versions:
            version = (await store.publish(ControlDocument(), expected=version)).version
            await asyncio.sleep(0.02)
    await one.stop()


async def test_a_bad_document_changes_nothing_and_a_later_one_mends_it(
    store: ControlStore, valkey: PrivateValkey, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "control-test")
    applied = Applied()
    one = follower(valkey.url, applied)
    await one.start()
    await store.publish(ControlDocument(), expected=0)
    await until(lambda: applied.versions == [1])
    await store.publish(ControlDocument(reason="bad"), expected=1)
    await until(lambda: one.stats().refused is not None)
    assert one.stats().refused == (2, "thresholds.int8: 7 is not in [0, 1]")
    assert one.stats().version == 1
    await store.publish(ControlDocument(reason="broken"), expected=2)
    await until(lambda: (one.stats().refused or (0,))[0] == 3)
    await store.publish(ControlDocument(), expected=3)
    await until(lambda: applied.versions == [1, 4])
    assert one.stats().refused is None
    # Said once, however often it is looked at.
    assert sum("version 2 is not applied" in r.message for r in caplog.records) == 1
    await one.stop()


async def test_redis_away_and_back_is_two_lines_and_the_last_version_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "control-test")
    server = PrivateValkey(tmp_path)
    server.start()
    applied = Applied()
    one = follower(server.url, applied)
    await one.start()
    writer = open_store(server.url, password=None, timeout_s=5)
    await writer.publish(ControlDocument(by="ann"), expected=0)
    await until(lambda: applied.versions == [1])
    await writer.close()
    assert server._process is not None
    server._process.kill()
    server._process.wait()
    await until(lambda: one.stats().state == "down")
    for _ in range(5):
        await one.look()
    assert one.stats().version == 1
    # It comes back empty: nothing had been saved. The followers give it back what all go by.
    server.start()
    await until(lambda: one.stats().state == "up")
    writer = open_store(server.url, password=None, timeout_s=5)
    await one.look()
    assert await writer.latest() == 1
    await writer.publish(ControlDocument(), expected=1)
    await until(lambda: applied.versions == [1, 2])
    lines = [r.message for r in caplog.records]
    assert sum("is away" in line for line in lines) == 1
    assert sum("is back" in line for line in lines) == 1
    await one.stop()
    await writer.close()
    server.stop()


async def test_an_older_state_of_redis_takes_nothing_back(
    store: ControlStore, valkey: PrivateValkey, caplog: pytest.LogCaptureFixture
) -> None:
    applied = Applied()
    one = follower(valkey.url, applied)
    await one.start()
    older = await store.publish(ControlDocument(by="ann"), expected=0)
    newest = await store.publish(ControlDocument(reason="key app revoked"), expected=1)
    await until(lambda: one.document == newest)
    # What a snapshot of some minutes ago, or a replica that was behind, brings back.
    await store._call("DEL", "bitgear:control")
    assert await store.restore(older)
    await until(lambda: any("came back with version 1; version 2 restored" in r.message for r in caplog.records))
    assert await store.current() == newest
    await one.look()
    assert applied.versions[-1] == 2
    assert 1 not in applied.versions[applied.versions.index(2) :]
    # Another document of the same number is another one.
    await store._call("DEL", "bitgear:control")
    other = newest.model_copy(update={"at": newest.at + 1, "by": "bob"})
    assert await store.restore(other)
    await until(lambda: one.document == other)
    await one.stop()


async def test_the_kept_version_counts_at_a_start_where_it_is_the_later_one(
    store: ControlStore, valkey: PrivateValkey, tmp_path: Path
) -> None:
    file = tmp_path / "control.json"
    kept = ControlDocument(version=7, at=100.0)
    file.write_bytes(dump(kept))
    assert await store.restore(ControlDocument(version=3, at=50.0))
    one = follower(valkey.url, Applied(), file)
    await one.start()
    assert one.document == await store.current() == kept
    await one.stop()
    # Redis began anew after that: what it says now holds.
    await store._call("DEL", "bitgear:control")
    anew = ControlDocument(version=3, at=200.0)
    assert await store.restore(anew)
    other = follower(valkey.url, Applied(), file)
    await other.start()
    assert other.document == await store.current() == anew
    await other.stop()


async def test_a_start_without_redis_goes_on_with_the_kept_version(
    store: ControlStore, valkey: PrivateValkey, tmp_path: Path
) -> None:
    file = tmp_path / "control.json"
    await store.publish(ControlDocument(by="ann"), expected=0)
    one = follower(valkey.url, Applied(), file)
    await one.start()
    await one.stop()
    assert file.stat().st_mode & 0o777 == 0o600
    applied = Applied()
    again = follower("redis://127.0.0.1:9/0", applied, file)
    await again.start()
    assert applied.versions == [1]
    assert again.stats()[:2] == ("down", 1)
    await again.stop()
    file.write_text("{")
    third = follower("redis://127.0.0.1:9/0", Applied(), file)
    await third.start()
    assert third.stats().version == 0
    await third.stop()


async def test_without_redis_there_is_nothing_to_follow() -> None:
    one = follower(None, Applied())
    await one.start()
    assert one.stats() == ("off", 0, None)
    await one.stop()


KEY = KeyRecord(sha256="a" * 64)


async def test_keys_of_a_document_that_cannot_be_applied_hold_and_are_kept(
    store: ControlStore, valkey: PrivateValkey, tmp_path: Path
) -> None:
    told: list[object] = []
    file = tmp_path / "control.json"
    one = Follower(
        open_store(valkey.url, password=None, timeout_s=5), Applied(), LOG, file=file, poll_s=0.05, keys=told.append
    )
    await one.start()
    await store.publish(ControlDocument(keys={"a": KEY}), expected=0)
    await until(lambda: one.document.version == 1)
    assert told == []
    await store.publish(
        ControlDocument(keys={"a": KEY.model_copy(update={"disabled": True})}, reason="bad"), expected=1
    )
    await until(lambda: one.stats().refused is not None)
    # "No key is needed any more" is not taken from what cannot be applied.
    await store.publish(ControlDocument(reason="broken"), expected=2)
    await until(lambda: (one.stats().refused or (0,))[0] == 3)
    await one.stop()
    assert told == [{"a": KEY.model_copy(update={"disabled": True})}]
    kept = parse(file.read_bytes())
    assert kept.version == 1
    assert kept.keys is not None
    assert kept.keys["a"].disabled


async def test_keys_of_a_newer_format_hold_as_far_as_they_are_understood(
    store: ControlStore, valkey: PrivateValkey, redis: Redis, tmp_path: Path
) -> None:
    told: list[object] = []
    newer = {
        "format": 99,
        "version": 1,
        "keys": {"a": {"sha256": "a" * 64, "colour": "red"}, "b": {"sha256": "none"}, "c": 1},
    }
    await redis.hset("bitgear:control", mapping={"version": 1, "at": "1.0", "document": json.dumps(newer)})
    one = Follower(open_store(valkey.url, password=None, timeout_s=5), Applied(), LOG, poll_s=0.05, keys=told.append)
    await one.start()
    await one.stop()
    assert told == [{"a": KEY}]
    # So do those of the copy on disk.
    file = tmp_path / "control.json"
    file.write_text(json.dumps({**newer, "version": 7}))
    away = open_store(f"unix://{tmp_path}/none.sock", password=None, timeout_s=0.1)
    two = Follower(away, Applied(), LOG, file=file, poll_s=5, keys=told.append)
    await two.start()
    await two.stop()
    assert told == [{"a": KEY}] * 2

"""The control document in a real Valkey: one writer wins, older versions and the audit log are bounded."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis

from router.control.document import ControlDocument, GroupTuning
from router.control.store import Conflict, ControlStore, UnreadableDocument, dump, open_store, parse
from router.store.valkey import PrivateValkey


def document(threshold: float, by: str = "ann") -> ControlDocument:
    return ControlDocument(by=by, reason="why", groups={"g": GroupTuning(thresholds={"int8": threshold})})


async def test_nothing_changed_is_version_0(store: ControlStore) -> None:
    assert await store.latest() == 0
    assert await store.current() == ControlDocument()
    assert await store.version(0) == ControlDocument()
    assert await store.version(3) is None
    assert (await store.history(), await store.audit()) == ([], [])


async def test_versions_follow_each_other(store: ControlStore) -> None:
    one = await store.publish(document(0.1), expected=0)
    two = await store.publish(document(0.2, by="bob"), expected=1)
    assert (one.version, one.base, two.version, two.base) == (1, 0, 2, 1)
    assert two.at >= one.at > 1.7e9
    assert await store.current() == two
    assert await store.version(1) == one
    assert await store.history() == [two, one]
    assert await store.history(1) == [two]


async def test_the_audit_log_says_who_changed_what(store: ControlStore) -> None:
    await store.publish(document(0.1), expected=0)
    await store.publish(document(0.2, by="bob"), expected=1)
    await store.note("bob", "purge", "all answers of g")
    purge, second, first = await store.audit()
    assert (purge.by, purge.action, purge.reason, purge.version, purge.changes) == (
        "bob",
        "purge",
        "all answers of g",
        None,
        (),
    )
    assert (first.by, first.action, first.version) == ("ann", "change", 1)
    assert [tuple(c) for c in first.changes] == [("groups.g", None, {"thresholds": {"int8": 0.1}})]
    assert (second.by, second.reason) == ("bob", "why")
    assert [tuple(c) for c in second.changes] == [("groups.g.thresholds.int8", 0.1, 0.2)]


async def test_of_many_writers_on_one_version_one_wins(store: ControlStore, valkey: PrivateValkey) -> None:
    stores = [open_store(valkey.url, password=None, timeout_s=5) for _ in range(10)]
    results = await asyncio.gather(
        *(s.publish(document(i / 100, by=str(i)), expected=0) for i, s in enumerate(stores)), return_exceptions=True
    )
    won = [r for r in results if isinstance(r, ControlDocument)]
    lost = [r for r in results if isinstance(r, Conflict)]
    assert (len(won), len(lost)) == (1, 9)
    assert all(c.version == 1 for c in lost)
    assert await store.current() == won[0]
    assert len(await store.audit()) == 1
    for one in stores:
        await one.close()


async def test_old_versions_and_old_entries_go(valkey: PrivateValkey, store: ControlStore) -> None:
    client = Redis.from_url(valkey.url)
    small = ControlStore(client, key="small", history=3, audit=10)
    for number in range(300):
        await small.publish(document(number / 1000), expected=number)
    assert [d.version for d in await small.history()] == [300, 299, 298]
    assert await small.version(297) is None
    # Streams are cut by whole nodes of 100.
    assert 10 <= len(await small.audit(1000)) <= 200
    await small.close()


async def test_a_newer_format_is_refused_and_never_written_over(valkey: PrivateValkey, store: ControlStore) -> None:
    client = Redis.from_url(valkey.url)
    newer = '{"format": 2, "version": 7, "something": "else"}'
    await client.hset("bitgear:control", mapping={"version": 7, "document": newer})
    await client.hset("{bitgear:control}:history", "7", newer)
    with pytest.raises(UnreadableDocument, match="format 2"):
        await store.current()
    with pytest.raises(UnreadableDocument, match="format 2"):
        await store.publish(document(0.1), expected=7)
    assert await store.latest() == 7
    await client.aclose()


@pytest.mark.parametrize("data", ["", "{", "[]", '{"version": -1}', '{"nonsense": 1}', "null"])
def test_what_is_no_document_is_told(data: str) -> None:
    with pytest.raises(UnreadableDocument):
        parse(data)


def test_a_document_comes_back_equal() -> None:
    one = ControlDocument(
        version=3,
        config={"thresholds": {"int8": None}},
        groups={"g": GroupTuning(bounds={"int8": (0.1, 0.2)})},
        drained={"g@int8": ("http://h:1",)},
    )
    assert parse(dump(one)) == one


async def test_what_was_lost_is_restored_once(store: ControlStore) -> None:
    lost = document(0.3).model_copy(update={"version": 9})
    assert await store.restore(lost)
    assert await store.current() == lost
    assert await store.version(9) == lost
    assert not await store.restore(document(0.4).model_copy(update={"version": 9}))
    assert not await store.restore(document(0.4).model_copy(update={"version": 8}))
    assert await store.current() == lost
    assert await store.restore(document(0.4).model_copy(update={"version": 10}))
    assert await store.latest() == 10


async def test_a_listener_hears_of_each_version(store: ControlStore) -> None:
    heard: asyncio.Queue[int] = asyncio.Queue()

    async def listen() -> None:
        async for number in store.listen():
            heard.put_nowait(number)

    task = asyncio.create_task(listen())
    version = 0
    async with asyncio.timeout(60):
        while heard.empty():
            version = (await store.publish(document(0.1), expected=version)).version
            await asyncio.sleep(0.02)
    assert 1 <= heard.get_nowait() <= version
    task.cancel()

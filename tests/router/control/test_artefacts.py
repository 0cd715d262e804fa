"""Classifiers kept under their hash: put, got back, copied for a start without Redis, never taken for another one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from redis.asyncio import Redis

from classifier.artefact import FOLDER, ArtefactError
from router.control import artefacts
from router.control.artefacts import Artefacts

LENGTH = (FOLDER / "length.json").read_bytes()
DIGEST = json.loads(LENGTH)["sha256"]


async def test_what_is_put_is_found_by_its_hash_by_everybody(redis: Redis) -> None:
    digest, made = await Artefacts(redis).put(LENGTH)
    assert digest == DIGEST
    found = await Artefacts(redis).get(digest)
    request = {"messages": [{"role": "user", "content": "Prove that there are infinitely many primes."}]}
    assert found.risk(request) == made.risk(request)


async def test_a_copy_serves_while_redis_has_lost_it(redis: Redis, tmp_path: Path) -> None:
    await Artefacts(redis, tmp_path).put(LENGTH)
    await Artefacts(redis, tmp_path).get(DIGEST)
    await redis.flushall()
    assert (await Artefacts(redis, tmp_path).get(DIGEST)).artefact.kind == "length"
    assert (await Artefacts(None, tmp_path).get(DIGEST)).artefact.kind == "length"


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "0" * 64, "A" * 64])
async def test_an_unknown_hash_is_told(redis: Redis, tmp_path: Path, digest: str) -> None:
    with pytest.raises(ArtefactError):
        await Artefacts(redis, tmp_path).get(digest)


async def test_another_artefact_under_a_hash_is_refused(redis: Redis, tmp_path: Path) -> None:
    other = "1" * 64
    await redis.set(f"bitgear:classifier:{other}", LENGTH)
    with pytest.raises(ArtefactError, match="another one"):
        await Artefacts(redis, tmp_path).get(other)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, LENGTH.replace(b'"kind": "length"', b'"kind": "random"')]
)
async def test_what_would_not_load_is_not_kept(redis: Redis, data: bytes) -> None:
    with pytest.raises(ArtefactError):
        await Artefacts(redis).put(data)
    assert await redis.keys("bitgear:classifier*") == []


async def test_too_large_a_file_is_refused_unread(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artefacts, "LARGEST", 100)
    with pytest.raises(ArtefactError, match="larger"):
        await Artefacts(redis).put(LENGTH)


async def test_those_that_nobody_wanted_for_longest_go(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artefacts, "KEPT", 2)
    names = ["length", "random", "constant"]
    kept = Artefacts(redis)
    digests = []
    for name in names[:2]:
        digests.append((await kept.put((FOLDER / f"{name}.json").read_bytes()))[0])
    await Artefacts(redis).get(digests[0])
    await kept.put((FOLDER / f"{names[2]}.json").read_bytes())
    assert await redis.exists(f"bitgear:classifier:{digests[0]}")
    assert not await redis.exists(f"bitgear:classifier:{digests[1]}")


async def test_those_that_serve_stay_whatever_is_put_after_them(
    redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artefacts, "KEPT", 2)
    kept = Artefacts(redis, tmp_path)
    serving, _ = await kept.put(LENGTH)
    os.utime(tmp_path / f"{serving}.json", (1.0, 1.0))
    for name in ("random", "constant", "linear"):
        await kept.put((FOLDER / f"{name}.json").read_bytes(), [serving])
    assert (await Artefacts(redis).get(serving)).artefact.kind == "length"
    assert (await Artefacts(None, tmp_path).get(serving)).artefact.kind == "length"
    assert len(await redis.keys("bitgear:classifier:*")) == 2
    assert len(list(tmp_path.glob("*.json"))) == 2


async def test_what_is_only_looked_at_is_not_kept(redis: Redis, tmp_path: Path) -> None:
    looking = Artefacts(redis, tmp_path)
    digest, _ = await looking.put(LENGTH, keep=False)
    assert (await looking.get(digest)).artefact.kind == "length"
    assert await redis.keys("bitgear:classifier*") == []
    assert list(tmp_path.iterdir()) == []

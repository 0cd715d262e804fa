"""How often a server that is away is tried, and how little is said of it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from router.cache.store import LONGEST_PAUSE_S, Store
from tests.conftest import until


async def test_tried_again_every_other_second_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="bitgear")
    pauses: list[float] = []
    asleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asleep(0)

    store = Store(f"unix://{tmp_path}/none", password=None, timeout_s=0.1, log=logging.getLogger("bitgear"))
    with monkeypatch.context() as patched:
        patched.setattr("router.cache.store.asyncio.sleep", sleep)
        store.start()
        async with asyncio.timeout(60):
            while len(pauses) < 8:
                await asleep(0.001)
        await store.stop()
    assert pauses[:5] == [0.25, 0.5, 1.0, 2.0, 2.0]
    assert max(pauses) == LONGEST_PAUSE_S == 2.0
    assert [r.getMessage().startswith("cache: ") for r in caplog.records] == [True]
    await until(lambda: store.state == "stopped")

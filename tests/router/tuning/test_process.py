"""The tuning process and its lease: killed with everything around it, another worker's takes over."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

import pytest
from redis.asyncio import Redis

from router.config.runtime import Runtime, RuntimeVariant
from router.config.schema import Config
from router.control.artefacts import Artefacts
from router.control.document import ControlDocument, GroupTuning
from router.control.store import ControlStore
from router.store.valkey import PrivateValkey
from router.tuning.jobs import Jobs, Lease
from router.tuning.process import _follow, report_folder, tuner_of
from router.tuning.report import keep
from router.tuning.scheduler import Scheduler


def runtime(url: str, control_file: Path) -> Runtime:
    variants = [
        RuntimeVariant(group="g", variant=p, precision=p, served_model="g", urls=("http://127.0.0.1:9",))
        for p in ("fp16", "int4")
    ]
    return Runtime(
        config=Config.model_validate({"tuning": {"mode": "automatic"}}),
        variants=tuple(variants),
        redis_url=url,
        control_file=str(control_file),
    )


async def test_another_workers_process_follows_one_that_was_killed_with_the_lease(
    redis: Redis, valkey: PrivateValkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = runtime(valkey.url, tmp_path / "control.json")
    lease = Lease(redis, ttl_s=2.0)
    assert await lease.take()
    first = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "router.tuning", "--token", lease.token, stdin=asyncio.subprocess.PIPE
    )
    assert first.stdin is not None
    first.stdin.write(made.to_json() + b"\n\x00")
    await first.stdin.drain()
    # It renews the lease to its whole length: it works.
    async with asyncio.timeout(60):
        while await redis.pttl("bitgear:tuning:lease") < 3000:
            await asyncio.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    await first.wait()
    # The time that a dead holder's lease goes on, made short here.
    await redis.pexpire("bitgear:tuning:lease", 500)
    monkeypatch.setattr("router.tuning.scheduler._TRY_S", 0.2)
    other = Scheduler(made, lambda: made.config, os.environ, logging.getLogger("test"))
    # Asked for before anybody looks: its process looks every few seconds.
    jobs = Jobs(redis)
    await jobs.wish("g", "test", False)
    other.start()
    try:
        async with asyncio.timeout(60):
            while (await redis.get("bitgear:tuning:lease") or b"").decode() in ("", lease.token):
                await asyncio.sleep(0.02)
            while not (done := [j for j in await jobs.recent("g") if j["by"] == "test"]):
                await asyncio.sleep(0.05)
        assert done[0]["status"] == "refused"
        # The report lies beside the control document's copy, too.
        report = tmp_path / "tuning" / f"{done[0]['id']}.md"
        async with asyncio.timeout(60):
            while not report.exists():
                await asyncio.sleep(0.02)
        assert "too little data" in report.read_text()
    finally:
        await other.stop()


def test_reports_in_a_folder_are_bounded(tmp_path: Path) -> None:
    for i in range(4):
        keep({"id": f"j{i}", "group": "g", "at": 0.0, "status": "kept", "reason": "why", "report": {}}, tmp_path, 2)
        os.utime(tmp_path / f"j{i}.json", (i, i))
    assert {path.name for path in tmp_path.iterdir()} == {"j2.json", "j2.md", "j3.json", "j3.md"}


def test_where_reports_go(tmp_path: Path) -> None:
    made = runtime("redis://localhost", tmp_path / "control.json")
    assert report_folder(made) == tmp_path / "tuning"
    assert report_folder(made.model_copy(update={"control_file": None})) is None
    for configured, wanted in (("/somewhere", Path("/somewhere")), ("", None)):
        tuning = made.config.tuning.model_copy(update={"report_folder": configured})
        config = made.config.model_copy(update={"tuning": tuning})
        assert report_folder(made.model_copy(update={"config": config})) == wanted


async def test_a_lost_classifier_keeps_no_change_of_the_configuration_from_tuning(
    redis: Redis, valkey: PrivateValkey, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made, store, artefacts = runtime(valkey.url, tmp_path / "control.json"), ControlStore(redis), Artefacts(redis)
    log = logging.getLogger("test")
    tuner = tuner_of(made, redis, artefacts, os.environ, log)
    groups = {"g": GroupTuning(classifier="1" * 64)}
    await store.publish(ControlDocument(groups=groups, config={"tuning": {"margin": 0.07}}), expected=0)
    assert await _follow(made, store, artefacts, tuner, os.environ, 0, log) == 1
    assert tuner.groups["g"].settings.margin == 0.07
    assert "111111111111" in caplog.text

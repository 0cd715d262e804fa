"""A group's own classifier: put in while requests come, on all workers, back again, and never a broken one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from typer.testing import CliRunner

from classifier.artefact import FOLDER
from router.cli.admin import admin_app
from router.store.valkey import PrivateValkey
from tests.conftest import TOKEN, until
from tests.router.admin.conftest import Operator, Start, configured
from tests.support.client import chat, fetch
from tests.support.upstream import ScriptedUpstream

PATH = "/admin/groups/g/classifier"
CONSTANT = json.loads((FOLDER / "constant.json").read_text())
LENGTH = json.loads((FOLDER / "length.json").read_text())


async def risks(url: str) -> dict[str, float]:
    answer = await fetch(url, "/v1/route", chat(model="g", messages=[{"role": "user", "content": "Why? " * 50}]))
    assert answer.status == 200, answer.body
    found: dict[str, float] = json.loads(answer.body)["decision"]["risks"]
    return found


async def test_a_classifier_is_put_in_and_taken_out_while_bitgear_runs(operator: Operator) -> None:
    before = (await operator("GET", PATH)).json()
    assert not before["own"]
    shared = await risks(operator.gear.url)
    await operator("PUT", "/admin/groups/g/thresholds", {"thresholds": {"int4": 0.9}})

    made = await operator("PUT", PATH, CONSTANT)
    assert made.status_code == 200, made.text
    now = (await operator("GET", PATH)).json()
    assert now["own"]
    assert now["sha256"] == CONSTANT["sha256"]
    assert now["kind"] == "constant"
    assert await risks(operator.gear.url) != shared
    # A threshold on the old risks means nothing on the new ones.
    held = (await operator("GET", "/admin/groups/g/thresholds")).json()
    assert held["tuned"] == {}
    assert held["effective"]["int4"] == CONSTANT["thresholds"]["recommended"]["int4"]

    version = made.json()["version"]
    assert (await operator("POST", "/admin/rollback", {"version": version - 1})).status_code == 200
    assert await risks(operator.gear.url) == shared
    assert (await operator("POST", "/admin/rollback", {"version": version})).status_code == 200
    assert (await operator("DELETE", PATH)).status_code == 200
    assert await risks(operator.gear.url) == shared


async def test_thresholds_set_afterwards_leave_the_classifier_in_place(operator: Operator) -> None:
    assert (await operator("PUT", PATH, CONSTANT)).status_code == 200
    assert (await operator("PUT", "/admin/groups/g/thresholds", {"thresholds": {"int4": 0.5}})).status_code == 200
    assert (await operator("GET", PATH)).json()["sha256"] == CONSTANT["sha256"]


async def test_a_dry_run_changes_nothing(operator: Operator, redis_url: str) -> None:
    shared = await risks(operator.gear.url)
    told = (await operator("PUT", f"{PATH}?dry_run=true", CONSTANT)).json()
    assert told["dry_run"]
    assert told["diff"]
    assert await risks(operator.gear.url) == shared
    async with Redis.from_url(redis_url) as redis:
        assert await redis.keys("bitgear:classifier*") == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"model": {"kind": "nothing", "parameters": {}}}, "sha256"),
        ({"sha256": "0" * 64}, "sha256"),
        ({"format": 99}, "format"),
        ({"format": None}, "format"),
    ],
)
async def test_a_broken_one_changes_nothing(operator: Operator, change: dict[str, Any], told: str) -> None:
    answer = await operator("PUT", PATH, {**CONSTANT, **change})
    assert answer.status_code == 422
    assert told in answer.text
    assert not (await operator("GET", PATH)).json()["own"]


async def test_an_unknown_group_is_told(operator: Operator) -> None:
    for method in ("GET", "PUT", "DELETE"):
        assert (await operator(method, "/admin/groups/other/classifier", CONSTANT)).status_code == 404


async def test_what_a_document_says_holds_though_its_classifier_is_lost_and_that_comes_when_it_is_found(
    operator: Operator, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    shared, worker = await risks(operator.gear.url), operator.gear.worker
    store = worker._control
    assert store is not None
    digest = CONSTANT["sha256"]
    groups = {"g": {"classifier": digest, "thresholds": {"int4": 0.77}}}
    current = await store.current()
    changed = {"groups": groups, "config": {"scenarios": {"realtime": {"ttft_ms": 7}}}}
    made = type(current).model_validate({**current.model_dump(), **changed})
    await store.publish(made, expected=current.version)
    await until(lambda: worker.serving.document.version == current.version + 1)
    assert worker.serving.config.scenarios.realtime.ttft_ms == 7
    assert digest[:12] in caplog.text
    # Its threshold was made for other risks than the configured classifier's.
    assert worker.serving.fleet.groups["g"].thresholds["int4"] != 0.77
    assert await risks(operator.gear.url) == shared

    async with Redis.from_url(redis_url) as redis:
        await redis.set(f"bitgear:classifier:{digest}", (FOLDER / "constant.json").read_bytes())
    await worker._follower.again()
    assert worker.serving.fleet.groups["g"].thresholds["int4"] == 0.77
    assert await risks(operator.gear.url) != shared
    assert worker.serving.missing == {}


async def test_a_rollback_to_a_classifier_that_is_lost_is_refused(operator: Operator, redis_url: str) -> None:
    version = (await operator("PUT", PATH, CONSTANT)).json()["version"]
    assert (await operator("DELETE", PATH)).status_code == 200
    async with Redis.from_url(redis_url) as redis:
        await redis.delete(f"bitgear:classifier:{CONSTANT['sha256']}")
    operator.gear.worker._artefacts._known.clear()
    answer = await operator("POST", "/admin/rollback", {"version": version})
    assert answer.status_code == 422
    assert "groups.g.classifier" in answer.text


async def test_a_lost_classifier_keeps_nobody_from_changing_something_else(operator: Operator, redis_url: str) -> None:
    assert (await operator("PUT", PATH, CONSTANT)).status_code == 200
    async with Redis.from_url(redis_url) as redis:
        await redis.delete(f"bitgear:classifier:{CONSTANT['sha256']}")
    operator.gear.worker._artefacts._known.clear()
    patch = {"scenarios": {"realtime": {"ttft_ms": 9}}}
    assert (await operator("PATCH", "/admin/config", patch, if_match="*")).status_code == 200
    serving = operator.gear.worker.serving
    assert serving.config.scenarios.realtime.ttft_ms == 9
    assert list(serving.missing) == ["g"]
    assert CONSTANT["sha256"][:12] in (await operator("GET", PATH)).json()["missing"]
    # Its group can have another one.
    assert (await operator("PUT", PATH, LENGTH)).status_code == 200
    assert operator.gear.worker.serving.missing == {}
    assert (await operator("GET", PATH)).json()["missing"] is None


async def test_the_configuration_names_a_groups_file_and_a_change_of_it_is_taken(
    bitgear: Start, up: ScriptedUpstream, redis_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "own.json"
    file.write_text(json.dumps(CONSTANT))
    config = configured(up.url, redis={"timeout_s": 5.0})
    config["groups"]["g"]["classifier"] = str(file)
    operator = Operator(await bitgear({"fp16": up.url}, config=config, redis_url=redis_url))
    try:
        assert (await operator("GET", PATH)).json()["kind"] == "constant"
        other = tmp_path / "other.json"
        other.write_text(json.dumps(LENGTH))
        patch = {"groups": {"g": {"classifier": str(other)}}}
        assert (await operator("PATCH", "/admin/config", patch, if_match="*")).status_code == 200
        assert (await operator("GET", PATH)).json()["kind"] == "length"
        patch["groups"]["g"]["classifier"] = str(tmp_path / "missing.json")
        answer = await operator("PATCH", "/admin/config", patch, if_match="*")
        assert answer.status_code == 422
        assert "missing.json" in answer.text
        assert (await operator("GET", PATH)).json()["kind"] == "length"
    finally:
        await operator.http.aclose()


async def test_a_worker_that_starts_without_redis_goes_on_with_its_copy(
    bitgear: Start, up: ScriptedUpstream, shared_valkey: PrivateValkey, redis_url: str, tmp_path: Path
) -> None:
    control = str(tmp_path / "control.json")
    config = configured(up.url, redis={"timeout_s": 5.0})
    first = Operator(await bitgear({"fp16": up.url}, config=config, redis_url=redis_url, control_file=control))
    assert (await first("PUT", PATH, CONSTANT)).status_code == 200
    await first.http.aclose()
    config["redis"]["timeout_s"] = 0.5
    gone = "redis://127.0.0.1:1/0"
    second = Operator(await bitgear({"fp16": up.url}, config=config, redis_url=gone, control_file=control))
    assert (await second("GET", PATH)).json()["sha256"] == CONSTANT["sha256"]
    await second.http.aclose()


async def test_the_shell_does_the_same(operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    file.write_text(json.dumps(CONSTANT))

    async def shell(*arguments: str) -> tuple[int, str]:
        given = ["classifier", *arguments, "--url", operator.gear.admin_url.replace(f"tester:{TOKEN}@", "")]
        done = await asyncio.to_thread(CliRunner().invoke, admin_app, [*given, "--token", TOKEN])
        return done.exit_code, done.output

    assert "shared" in (await shell("show", "g"))[1]
    assert (await shell("set", "g", str(tmp_path / "none.json")))[0] == 2
    code, told = await shell("set", "g", str(file), "--dry-run")
    assert (code, "would change" in told) == (0, True)
    code, told = await shell("set", "g", str(file), "--reason", "calibrated on our prompts")
    assert (code, "version 1" in told) == (0, True)
    assert "own" in (await shell("show", "g"))[1]
    code, told = await shell("unset", "g")
    assert (code, "version 2" in told) == (0, True)
    assert "shared" in (await shell("show", "g"))[1]

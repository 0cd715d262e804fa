"""Changing a running worker: configuration, versions, replicas, thresholds, the audit log."""

from __future__ import annotations

import asyncio

from tests.conftest import until
from tests.router.admin.conftest import Operator
from tests.support.client import chat, fetch
from tests.support.upstream import ScriptedUpstream


async def test_a_patch_holds_at_once_and_is_told(operator: Operator) -> None:
    before = await operator("GET", "/admin/config")
    assert before.headers["etag"] == '"0"'
    patch = {"thresholds": {"int8": 0.25}, "timeouts": {"total_s": 77}}
    made = await operator("PATCH", "/admin/config?reason=slower", patch, if_match='"0"')
    assert (made.status_code, made.json()["version"], made.headers["etag"]) == (200, 1, '"1"')
    after = await operator("GET", "/admin/config")
    assert after.headers["etag"] == '"1"'
    assert (after.json()["thresholds"], after.json()["timeouts"]["total_s"]) == ({"int8": 0.25}, 77)
    assert operator.gear.worker.serving.config.timeouts.total_s == 77
    (entry,) = (await operator("GET", "/admin/audit")).json()
    assert (entry["by"], entry["action"], entry["reason"], entry["version"]) == ("tester", "change", "slower", 1)
    assert {d["path"] for d in entry["diff"]} == {"config.thresholds", "config.timeouts"}
    status = (await operator("GET", "/admin/status")).json()
    assert status["policy_version"] == "1"
    assert status["control"] == {"state": "up", "version": 1, "refused_version": None, "refused_because": None}


async def test_a_number_beyond_all_bounds_is_refused(operator: Operator) -> None:
    made = await operator("PATCH", "/admin/config", {"server": {"max_concurrent": 10**30}}, if_match="*")
    assert made.status_code == 422
    assert "64-bit" in made.json()["error"]["message"]
    assert (await operator("GET", "/admin/config")).headers["etag"] == '"0"'


async def test_changes_need_the_version_that_they_were_made_from(operator: Operator) -> None:
    patch = {"thresholds": {"int8": 0.25}}
    assert (await operator("PATCH", "/admin/config", patch)).status_code == 428
    assert (await operator("PUT", "/admin/config", patch)).status_code == 428
    assert (await operator("PATCH", "/admin/config", patch, if_match='"5"')).status_code == 412
    assert (await operator("PATCH", "/admin/config", patch, if_match="nonsense")).status_code == 412
    answers = await asyncio.gather(
        *(operator("PATCH", "/admin/config", {"thresholds": {"int8": i / 10}}, if_match='"0"') for i in range(6))
    )
    assert sorted(a.status_code for a in answers) == [200] + [412] * 5
    # Without a version of their own all are made, one upon the other.
    answers = await asyncio.gather(
        *(operator("PATCH", "/admin/config", {"timeouts": {"body_s": i + 1}}, if_match="*") for i in range(4))
    )
    assert [a.status_code for a in answers] == [200] * 4
    assert (await operator("GET", "/admin/config")).headers["etag"] == '"5"'


async def test_a_change_of_nothing_makes_no_version(operator: Operator) -> None:
    set_to = {"timeouts": {"body_s": 7}}
    assert (await operator("PATCH", "/admin/config", set_to, if_match="*")).json()["version"] == 1
    for patch in ({}, set_to):
        made = await operator("PATCH", "/admin/config", patch, if_match='"1"')
        assert (made.status_code, made.headers["etag"]) == (200, '"1"')
        assert (made.json()["version"], made.json()["diff"]) == (1, [])
    assert (await operator("PATCH", "/admin/config", {}, if_match='"0"')).status_code == 412
    assert len((await operator("GET", "/admin/audit")).json()) == 1


async def test_an_error_quotes_little_of_a_huge_request(operator: Operator) -> None:
    made = await operator("PATCH", "/admin/config", {"x" * 500_000: 1}, if_match="*")
    assert made.status_code == 422
    assert "unknown field" in made.text
    assert len(made.text) < 5_000
    made = await operator("PATCH", "/admin/config", {f"unknown{n}": 1 for n in range(5_000)}, if_match="*")
    assert made.status_code == 422
    assert 1 <= len(made.json()["error"]["problems"]) <= 100
    assert len(made.json()["error"]["message"]) <= 2_000


async def test_a_bad_change_names_its_field_and_changes_nothing(operator: Operator) -> None:
    serving = operator.gear.worker.serving
    for patch, field in (
        ({"scenarios": {"realtime": {"ttft_ms": "soon"}}}, "scenarios.realtime.ttft_ms"),
        ({"server": {"port": 1}}, "server.port"),
        ({"nonsense": 1}, "nonsense"),
        ({"groups": {"g": {"backends": []}}}, "groups.g.backends"),
    ):
        answer = await operator("PATCH", "/admin/config", patch, if_match="*")
        assert answer.status_code == 422
        assert field in [p["field"] for p in answer.json()["error"]["problems"]]
    assert operator.gear.worker.serving is serving
    assert (await operator("GET", "/admin/versions")).json() == []


async def test_a_dry_run_tells_and_changes_nothing(operator: Operator) -> None:
    answer = await operator("PATCH", "/admin/config?dry_run=true", {"timeouts": {"body_s": 5}}, if_match="*")
    assert (answer.status_code, answer.json()["dry_run"]) == (200, True)
    assert answer.json()["diff"] == [{"path": "config.timeouts", "before": None, "after": {"body_s": 5}}]
    assert (await operator("GET", "/admin/config")).headers["etag"] == '"0"'


async def test_a_dry_run_tells_what_it_would_have_done(operator: Operator, up: ScriptedUpstream) -> None:
    new = {"precision": "int4", "urls": [up.url], "model": "g"}
    assert (await operator("POST", "/admin/groups/g/variants", new)).status_code == 200
    await until(lambda: all(r.ready for v in operator.gear.worker.fleet.variants() for r in v.replicas))
    for _ in range(3):
        assert (await fetch(operator.gear.url, "/v1/chat/completions", chat(model="g"))).status == 200
    await until(lambda: operator.gear.worker._sink.stats().written >= 3)
    answer = await operator("PATCH", "/admin/config?dry_run=true", {"policy": "full_precision"}, if_match="*")
    effect = answer.json()["effect"]
    assert effect["requests"] == 3
    assert effect["shares_after"] == {"fp16": 1.0}


async def test_what_was_read_can_be_put_back_changed(operator: Operator) -> None:
    config = (await operator("GET", "/admin/config")).json()
    config["scenarios"]["realtime"]["ttft_ms"] = None
    config["balancer"] = "round_robin"
    made = await operator("PUT", "/admin/config", config, if_match='"0"')
    assert made.status_code == 200, made.text
    assert (await operator("GET", "/admin/versions/1")).json()["config"] == {
        "scenarios": {"realtime": {"ttft_ms": None}},
        "balancer": "round_robin",
    }
    assert (await operator("GET", "/admin/config")).json() == config


async def test_versions_differ_and_an_older_one_comes_back(operator: Operator) -> None:
    for value in (10, 20):
        await operator("PATCH", "/admin/config", {"timeouts": {"body_s": value}}, if_match="*")
    assert [v["version"] for v in (await operator("GET", "/admin/versions")).json()] == [2, 1]
    assert (await operator("GET", "/admin/versions/1/diff?to=2")).json() == [
        {"path": "config.timeouts.body_s", "before": 10, "after": 20}
    ]
    assert (await operator("GET", "/admin/versions/9")).status_code == 404
    assert (await operator("POST", "/admin/rollback", {"version": 9})).status_code == 404
    back = await operator("POST", "/admin/rollback", {"version": 1})
    assert back.json()["version"] == 3
    assert operator.gear.worker.serving.config.timeouts.body_s == 10
    await operator("POST", "/admin/rollback", {"version": 0})
    assert operator.gear.worker.serving.config.timeouts.body_s == 60


async def test_thresholds_are_set_for_a_group(operator: Operator) -> None:
    made = await operator("PUT", "/admin/groups/g/thresholds", {"thresholds": {"int8": 0.4}})
    assert made.status_code == 200
    found = (await operator("GET", "/admin/groups/g/thresholds")).json()
    assert (found["tuned"], found["effective"]["int8"], found["version"]) == ({"int8": 0.4}, 0.4, 1)
    assert (await operator("PUT", "/admin/groups/g/thresholds", {"thresholds": {"int8": 2}})).status_code == 422
    unknown = await operator("PUT", "/admin/groups/g/thresholds", {"thresholds": {"int3": 0}})
    assert (unknown.status_code, unknown.json()["error"]["problems"][0]["field"]) == (422, "thresholds.int3")
    assert (await operator("PUT", "/admin/groups/h/thresholds", {"thresholds": {}})).status_code == 404
    assert (await operator("GET", "/admin/groups")).json()[0]["thresholds"]["effective"]["int8"] == 0.4
    await operator("PUT", "/admin/groups/g/thresholds", {"thresholds": {}})
    assert (await operator("GET", "/admin/groups/g")).json()["thresholds"]["tuned"] == {}


async def test_replicas_come_are_drained_and_go(operator: Operator, up: ScriptedUpstream) -> None:
    path = "/admin/groups/g/variants/fp16/replicas"
    async with ScriptedUpstream("g") as other:
        assert (await operator("POST", path, {"url": other.url + "/v1/"})).status_code == 200
        assert (await operator("POST", path, {"url": other.url})).status_code == 409
        fleet = operator.gear.worker.fleet
        await until(lambda: all(r.ready for r in fleet.variants()[0].replicas))
        assert [r["url"] for r in (await operator("GET", "/admin/variants")).json()[0]["replicas"]] == [
            up.url,
            other.url,
        ]
        assert (await operator("POST", f"{path}/drain", {"url": up.url})).status_code == 200
        assert [r.draining for r in fleet.variants()[0].replicas] == [True, False]
        assert (await operator("POST", f"{path}/drain", {"url": "http://h:1"})).status_code == 404
        assert (await operator("POST", f"{path}/undrain", {"url": up.url})).status_code == 200
        assert [r.draining for r in fleet.variants()[0].replicas] == [False, False]
        assert (await operator("DELETE", f"{path}?url={up.url}")).status_code == 200
        assert [r.url for r in operator.gear.worker.fleet.variants()[0].replicas] == [other.url]
        # The last one stays: a variant without servers is no variant.
        assert (await operator("DELETE", f"{path}?url={other.url}")).status_code == 422
        assert (await operator("POST", path, {"url": "ftp://h"})).status_code == 422


async def test_variants_come_and_go(operator: Operator, up: ScriptedUpstream) -> None:
    new = {"precision": "int4", "urls": [up.url], "model": "g"}
    assert (await operator("POST", "/admin/groups/g/variants", new)).status_code == 200
    await until(lambda: all(r.ready for v in operator.gear.worker.fleet.variants() for r in v.replicas))
    pinned = await fetch(operator.gear.url, "/v1/chat/completions", chat(model="g@int4"))
    assert pinned.status == 200
    assert (await operator("POST", "/admin/groups/g/variants", new)).status_code == 422
    assert (await operator("DELETE", "/admin/groups/g/variants/int4")).status_code == 200
    assert (await operator("DELETE", "/admin/groups/g/variants/int4")).status_code == 404
    assert (await fetch(operator.gear.url, "/v1/chat/completions", chat(model="g@int4"))).status == 404


async def test_a_purge_is_in_the_audit_log(operator: Operator) -> None:
    await until(lambda: operator.gear.worker.caching.store.up)
    assert (await operator("POST", "/admin/cache/purge", {"credential": "Bearer sk-secret"})).status_code == 200
    audit = await operator("GET", "/admin/audit")
    assert audit.json()[0]["action"] == "purge"
    assert "sk-secret" not in audit.text


async def test_tuning_is_paused_and_asked(operator: Operator) -> None:
    assert (await operator("GET", "/admin/tuning/jobs/nothing")).status_code == 404
    assert (await operator("GET", "/admin/tuning/jobs")).json() == []
    assert (await operator("POST", "/admin/tuning/groups/nothing/pause")).status_code == 404
    assert (await operator("POST", "/admin/tuning/groups/g/pause")).json()["paused"] is True
    assert (await operator("GET", "/admin/groups/g/thresholds")).json()["paused"] is True
    assert (await operator("GET", "/admin/audit")).json()[0]["by"] == "tester"
    assert (await operator("POST", "/admin/tuning/groups/g/resume")).json()["paused"] is False
    assert (await operator("POST", "/admin/tuning/jobs", {"group": "g"})).json()["accepted"] is True
    assert set((await operator("GET", "/admin/tuning")).json()["groups"]) == {"g"}


async def test_a_rollback_lets_no_paused_group_go_on(operator: Operator) -> None:
    assert (await operator("PUT", "/admin/groups/g/thresholds", {"thresholds": {"int8": 0.1}})).status_code == 200
    assert (await operator("POST", "/admin/tuning/groups/g/pause")).status_code == 200
    for version in (1, 0):
        assert (await operator("POST", "/admin/rollback", {"version": version})).status_code == 200
        told = (await operator("GET", "/admin/groups/g/thresholds")).json()
        assert (told["tuned"], told["paused"]) == ({"int8": 0.1} if version else {}, True)
    # Nor is one paused again that goes on now.
    assert (await operator("POST", "/admin/tuning/groups/g/resume")).status_code == 200
    assert (await operator("POST", "/admin/rollback", {"version": 2})).status_code == 200
    assert (await operator("GET", "/admin/groups/g/thresholds")).json()["paused"] is False

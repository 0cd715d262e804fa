"""Recorded decisions made anew: the same rules give the same, others give what a proxy with them would have decided."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openai
import orjson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from redis import Redis
from typer.testing import CliRunner

import classifier
from backends.settings import BackendSettings, SimulatorSettings
from backends.simulator import simulated
from router.cli.main import app
from router.config.runtime import Runtime
from router.config.schema import Config, GroupConfig
from router.config.variant import given as runtime_variant
from router.control.document import Canary, ControlDocument, GroupTuning
from router.decision import POLICIES, CanaryArm, Exploration, Inputs, explore
from router.proxy.deciding import Question
from router.proxy.outcome import Outcome
from router.proxy.resolve import Target
from router.proxy.surface import CHAT
from router.replay import dry_run, effect, recorded, rules_of
from router.replay.rules import GroupRules, Rules
from router.replay.source import SourceError, about, from_file, from_stream
from router.state import Fleet, Group
from router.store.valkey import PrivateValkey
from router.telemetry import event_of
from tests.conftest import Bitgear, until
from tests.router.decision.draws import draw_inputs

CONFIG: dict[str, Any] = {
    "exploration": {"share": 0.2, "max_risk": 0.3},
    "thresholds": {"int8": 0.003, "int4": 0.9},
    "scenarios": {"realtime": {"ttft_ms": 50.0}},
}
RECOMMENDED = classifier.load().thresholds


def event_like(inputs: Inputs, rng: random.Random, policy: str, exploration: Exploration) -> dict[str, Any]:
    """The event that a proxy would write of a decision on these inputs, as JSON gives it back."""
    draw, dice = rng.random(), rng.random()
    decision = POLICIES[policy](inputs)._replace(thresholds=inputs.thresholds)
    decision = explore(decision, exploration, dice, inputs.request.max_risk)
    group = Group("g", {}, {}, "realtime")
    target = Target(group, "g", None, inputs.scenario)
    asked = Question(target, inputs.request, inputs.risks, 1.0, POLICIES[policy], draw, dice, exploration)
    outcome = Outcome("id", CHAT, 0.0, group, decision, asked, inputs.risks, attempts=1, status=200, ended=1.0)
    event = event_of(outcome)
    event["variant"] = decision.variant
    if "max_model_lens" in event:
        event["max_model_lens"] = [v.max_model_len for v in inputs.variants]
    loaded: dict[str, Any] = orjson.loads(orjson.dumps(event))
    return loaded


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_the_same_rules_decide_the_same_whatever_was_recorded(policy: str) -> None:
    rng = random.Random(7)
    decided = explored = 0
    for _ in range(2000):
        inputs = draw_inputs(rng)
        exploration = Exploration(rng.choice((0.0, 0.8)), 1.0)
        event = event_like(inputs, rng, policy, exploration)
        one = recorded(event)
        other = GroupRules(inputs.thresholds, inputs.version, None)
        again = Rules(POLICIES[policy], exploration, {"s": inputs.scenario}, {}, other).decide(one)
        assert again.variant == event["variant"]
        assert again.reason == event["reason"]
        assert [c.e2e_s for c in again.candidates] == [
            row[5] if row[5] is not None else float("inf") for row in event["candidates"]
        ]
        decided += again.variant is not None
        explored += again.reason == "explored"
    assert decided > 600
    assert policy == "full_precision" or explored > 30


def config_of(**changes: Any) -> Config:
    backends = tuple(BackendSettings(precision=p, urls=(f"http://{p}:1",)) for p in ("fp16", "int8", "int4"))
    group = GroupConfig(backends=backends, thresholds={"int8": 0.2})
    return Config.model_validate({"thresholds": {"int4": 0.04}, "groups": {"g": group}, **changes})


def test_rules_are_those_of_a_fleet_with_the_same_configuration() -> None:
    config = config_of(scenarios={"realtime": {"ttft_ms": 123, "overload": "refuse"}})
    runtime = Runtime(config=config, variants=tuple(runtime_variant("g", b) for b in config.groups["g"].backends))
    fleet = Fleet(runtime, {}, {"int8": 0.9, "nvfp4": 0.7})
    rules = rules_of(config, {"int8": 0.9, "nvfp4": 0.7})
    assert rules.groups["g"].thresholds == fleet.groups["g"].thresholds == {"int8": 0.2, "nvfp4": 0.7, "int4": 0.04}
    assert rules.scenarios == fleet.scenarios
    assert rules.groups["g"].version == "v1"
    assert rules.others.thresholds == {"int8": 0.9, "nvfp4": 0.7, "int4": 0.04}


def test_tuned_thresholds_and_canaries_count() -> None:
    canary = Canary(share=0.5, thresholds={"int4": 0.5}, since=0.0)
    document = ControlDocument(version=3, groups={"g": GroupTuning(thresholds={"int8": 0.1}, canary=canary)})
    found = rules_of(config_of(), {}, document).groups["g"]
    assert found == GroupRules({"int4": 0.04, "int8": 0.1}, "3", CanaryArm(0.5, {"int4": 0.5, "int8": 0.1}, "3-canary"))


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[PrivateValkey]:
    server = PrivateValkey(tmp_path / "state", max_memory_mib=16)
    server.start()
    yield server
    server.stop()


def count(url: str) -> int:
    with Redis.from_url(url) as client:
        return int(client.xlen("bitgear:events"))


async def test_real_traffic_replayed(
    bitgear: Callable[..., Awaitable[Bitgear]], valkey: PrivateValkey, tmp_path: Path
) -> None:
    fast = SimulatorSettings(time_scale=0.1)
    async with AsyncExitStack() as stack:
        urls = {
            p: await stack.enter_async_context(simulated(fast, model="g", precision=p))  # type: ignore[arg-type]
            for p in ("fp16", "int8", "int4")
        }
        gear = await bitgear(urls, config=CONFIG, redis_url=valkey.url)
        client = openai.AsyncOpenAI(base_url=gear.url + "/v1", api_key="none")
        for i in range(60):
            await client.chat.completions.create(
                model="g@int4" if i % 15 == 0 else "g",
                messages=[{"role": "user", "content": f"What is {i} * {i * 7}? " + "Prove it. " * (i % 9)}],
                max_tokens=3 + i % 5,
                extra_headers={"x-bitgear-max-risk": "0.01"} if i % 10 == 1 else {},
            )
        await client.embeddings.create(model="g", input="hello")
        await until(lambda: count(valkey.url) == 61)

    # The machine may be slow, and which variant was in time differs from run to run: only what was recorded counts.
    events = list(from_stream(valkey.url, "bitgear:events"))
    config = Config.model_validate(CONFIG)
    same = effect(events, config, RECOMMENDED)
    assert (same.requests, same.moved, same.skipped) == (61, 0, {})
    assert same.shares_before == same.shares_after
    assert same.before == same.after
    assert same.shares_before["int4"] > 0
    assert any(event["explored"] for event in events)

    untimed = {"realtime": {"ttft_ms": None, "e2e_ms": None}}
    strict = Config.model_validate(
        {"exploration": {"share": 0.0}, "thresholds": {"int8": 0.0, "int4": 0.0}, "scenarios": untimed}
    )
    moved = effect(events, strict, RECOMMENDED, limit=3)
    pinned = [event["request"][4] is not None for event in events]
    lower = [event["variant"] != "fp16" for event in events]
    assert moved.shares_after["int4"] * 61 == pytest.approx(sum(pinned))
    assert moved.moved == sum(low and not pin for low, pin in zip(lower, pinned, strict=True)) > 5
    assert sum(moved.moves.values()) == moved.moved
    assert len(moved.listed) == 3
    assert moved.after.risk < moved.before.risk
    assert effect(events, strict, RECOMMENDED, group="other").requests == 0

    _command(events, valkey, tmp_path)


def _command(events: list[dict[str, Any]], valkey: PrivateValkey, folder: Path) -> None:
    runner, exported = CliRunner(), folder / "events.jsonl.gz"
    (folder / "same.json").write_bytes(orjson.dumps(CONFIG))
    (folder / "strict.yaml").write_text("policy: full_precision\n")
    done = runner.invoke(app, ["events", "export", str(exported), "--redis", valkey.url])
    assert (done.exit_code, done.output) == (0, f"61 events written to {exported}\n")
    assert list(from_file(exported)) == events
    wanted = str(events[7]["id"])
    shown = orjson.loads(runner.invoke(app, ["events", "show", wanted, "--json", "--redis", valkey.url]).output)
    assert shown == {"events": [events[7]], "labels": []}
    arguments = ["replay", str(exported), "--policy", str(folder / "same.json"), "--json"]
    assert orjson.loads(runner.invoke(app, arguments).output)["moved"] == 0
    arguments = ["replay", "--redis", valkey.url, "--policy", str(folder / "strict.yaml"), "--list", "2"]
    printed = runner.invoke(app, arguments).output
    assert "61 requests decided anew" in printed
    assert " -> fp16" in printed


def test_events_that_cannot_be_decided_anew_are_told() -> None:
    rng = random.Random(1)
    good = event_like(draw_inputs(rng), rng, "adaptive", Exploration())
    older = {**good, "candidates": [["int8", True, 0.1, 0.5, 0.1, 0.2]]}
    damaged = {**good, "draw": "x"}
    found = effect([{}, {**good, "reason": "cached"}, older, damaged, good], Config(), {})
    assert found.requests == 1
    assert found.skipped == {
        "holds no decision, or one of an older version": 2,
        "answered from the cache": 1,
        "is damaged": 1,
    }
    orjson.dumps(found.as_json())


@pytest.mark.parametrize(
    "wrong",
    [
        {"draw": 1.5},
        {"draw": True},
        {"dice": None},
        {"t": "yesterday"},
        {"t": -1.0},
        {"group": None},
        {"id": 7},
        {"attempts": -1},
        {"generates": "yes"},
        {"variant": "nobody"},
        {"reason": ["within_limits"]},
        {"risks": {"int8": 1.2}},
        {"request": ["12", 5]},
        {"request": [12, -5]},
        {"request": [12, 5, 0, None, None, 3.0]},
        {"request": [12, 5, 0, None, 4]},
        {"candidates": []},
    ],
)
@pytest.mark.parametrize("group", [None, "g"])
def test_a_damaged_event_is_counted_and_never_decided(wrong: dict[str, Any], group: str | None) -> None:
    rng = random.Random(1)
    good = event_like(draw_inputs(rng), rng, "adaptive", Exploration())
    assert good["variant"] is not None
    found = effect([{**good, **wrong}], Config(), {}, group=group)
    assert found.requests == 0
    assert found.skipped == {"is damaged": 1}
    assert effect([good], Config(), {}, group=group).requests == 1


@given(st.integers(0, 10), st.sampled_from((None, -0.5, 1.5, "x", True, [], 3)), st.integers(0, 2000))
def test_a_candidate_that_is_damaged_never_decides_as_something_else(place: int, value: Any, seed: int) -> None:
    rng = random.Random(seed)
    good = event_like(draw_inputs(rng), rng, "adaptive", Exploration())
    event = {**good, "candidates": [list(row) for row in good["candidates"]]}
    assume(event["candidates"])
    before = event["candidates"][0][place]
    event["candidates"][0][place] = value
    found = effect([event], Config(), {})
    # Decided only when the value may stand there: of the kind of what stood there, or null for endless.
    if found.requests:
        ranged = place in (2, 4, 5, 7, 10, 3)
        assert (
            place == 3
            or (value is None and place in (4, 5, 10))
            or (isinstance(value, bool) == isinstance(before, bool) and (not ranged or value >= 0))
        )


def test_a_group_that_nothing_is_recorded_of_is_told(tmp_path: Path) -> None:
    rng = random.Random(1)
    good = event_like(draw_inputs(rng), rng, "adaptive", Exploration())
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(orjson.dumps({**good, "group": g}) + b"\n" for g in ("b", "a", "b")))
    for more in ([], ["--json"]):
        done = CliRunner().invoke(app, ["replay", str(path), "--group", "c", *more])
        assert done.exit_code == 2
        assert "no recorded request is of group 'c': they hold a, b" in done.output
    assert "2 requests" in CliRunner().invoke(app, ["replay", str(path), "--group", "b"]).output
    path.write_bytes(b"")
    done = CliRunner().invoke(app, ["replay", str(path), "--group", "c"])
    assert (done.exit_code, "there are no events" in done.output) == (2, True)


def test_an_event_without_its_time_is_counted_also_within_hours(tmp_path: Path) -> None:
    rng = random.Random(1)
    good = event_like(draw_inputs(rng), rng, "adaptive", Exploration())
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(orjson.dumps({**good, "t": t}) + b"\n" for t in (None, 1.0)))
    printed = CliRunner().invoke(app, ["replay", str(path), "--hours", "1"]).output
    assert "1 events left out: is damaged" in printed


@pytest.mark.parametrize(("content", "says"), [(b"{}\n{", ":2: not JSON"), (b"[]", ":1: expected an object")])
def test_a_bad_file_is_told_with_its_line(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=says):
        list(from_file(path))
    done = CliRunner().invoke(app, ["replay", str(path)])
    assert done.exit_code == 2
    assert says in done.output


def test_a_stream_that_is_not_there_is_told(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["replay", "--redis", f"unix://{tmp_path}/nothing"])
    assert done.exit_code == 2
    assert "nothing" in done.output


def test_a_group_with_a_classifier_of_its_own_has_its_thresholds() -> None:
    own = {"g": {"int4": 0.4}, "unnamed": {"int4": 0.5}}
    rules = rules_of(Config(), {"int4": 0.1}, ControlDocument(groups={"h": GroupTuning()}), own)
    found = {name: group.thresholds["int4"] for name, group in rules.groups.items()}
    assert found == {"g": 0.4, "unnamed": 0.5, "h": 0.1}
    assert rules.others.thresholds["int4"] == 0.1


async def test_a_dry_run_tells_nothing_of_risks_that_another_classifier_would_see(valkey: PrivateValkey) -> None:
    rng = random.Random(3)
    with Redis.from_url(valkey.url) as client:
        for name in ("g", "h"):
            for _ in range(5):
                event = event_like(draw_inputs(rng), rng, "adaptive", Exploration())
                client.xadd("bitgear:events", {"event": orjson.dumps({**event, "group": name})})
    own = ControlDocument(groups={"g": GroupTuning(classifier="a" * 64)})
    serving: Any = SimpleNamespace(config=Config(), document=own, classifiers={"g": SimpleNamespace(thresholds={})})
    tell = dry_run(Runtime(config=Config(), redis_url=valkey.url), {}, None, lambda: serving)
    assert tell is not None
    for document, known in ((own, 10), (ControlDocument(), 5)):
        found = await tell(document, 3600.0)
        assert found["requests"] == known
        assert sum(found["skipped"].values()) == 10 - known
    other = own.model_copy(update={"groups": {**own.groups, "h": GroupTuning(classifier="b" * 64)}})
    found = await tell(other, 3600.0)
    assert (found["requests"], list(found["skipped"].values())) == (5, [5])


async def test_a_dry_run_tells_of_the_newest_events(valkey: PrivateValkey) -> None:
    rng = random.Random(3)
    events = [event_like(draw_inputs(rng), rng, "adaptive", Exploration()) for _ in range(30)]
    with Redis.from_url(valkey.url) as client:
        client.xadd("bitgear:events", {"event": orjson.dumps({"group": "g"})}, id="1000-0")
        for event in events:
            client.xadd("bitgear:events", {"event": orjson.dumps({**event, "group": "g"})})
    config = config_of()
    tell = dry_run(Runtime(config=config, redis_url=valkey.url), {}, None)
    assert tell is not None
    document = ControlDocument(version=2, config={"policy": "full_precision"})
    found = await tell(document, 3600.0)
    expected = effect(events, Config.model_validate({**config.model_dump(), "policy": "full_precision"}), {}, document)
    assert found["requests"] == 30
    assert found["moved"] == expected.moved > 0
    valkey.stop()
    assert "error" in await tell(document, 3600.0)
    assert dry_run(Runtime(config=config), {}, None) is None


def test_a_long_stream_is_read_in_pages(valkey: PrivateValkey) -> None:
    with Redis.from_url(valkey.url) as client, client.pipeline() as pipe:
        for i in range(1203):
            pipe.xadd("s", {"event": orjson.dumps({"id": i})}, id=f"{1000 + i}-0")
        pipe.execute()
    assert [e["id"] for e in from_stream(valkey.url, "s")] == list(range(1203))
    assert [e["id"] for e in from_stream(valkey.url, "s", since=2.2)] == [1200, 1201, 1202]


def test_one_requests_entries_are_found_on_any_page(valkey: PrivateValkey) -> None:
    with Redis.from_url(valkey.url) as client, client.pipeline() as pipe:
        for number in range(1203):
            pipe.xadd("s", {"event": orjson.dumps({"id": f"r{number % 600}", "n": number})})
        pipe.execute()
    assert [entry["n"] for entry in about(valkey.url, "s", "event", "r0")] == [0, 600, 1200]
    assert [entry["n"] for entry in about(valkey.url, "s", "event", "r599")] == [599, 1199]
    assert about(valkey.url, "s", "event", "r") == []


def test_an_event_kept_with_a_probability_stands_for_its_inverse() -> None:
    rng, found = random.Random(3), dict[str, dict[str, Any]]()
    while len(found) < 2:
        event = event_like(draw_inputs(rng), rng, "adaptive", Exploration())
        if event["variant"] is not None and event["reason"] == "within_limits":
            found.setdefault(event["variant"], event)
    (rare, often), (first, second) = found, found.values()
    told = effect([first, {**second, "sampled": 0.25}], config_of(), {})
    assert told.requests == 2
    assert told.shares_before == {rare: 0.2, often: 0.8}
    alone = [effect([one], config_of(), {}).before.risk for one in (first, second)]
    assert told.before.risk == pytest.approx(0.2 * alone[0] + 0.8 * alone[1])
    for wrong in (0.0, -1.0, 1.5, "x", None):
        assert effect([{**first, "sampled": wrong}], config_of(), {}).skipped == {"is damaged": 1}

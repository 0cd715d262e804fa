"""Groups and variants: what a decision sees of them, which replica is picked, what they learn."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.config.runtime import Runtime, RuntimeVariant
from router.config.schema import Config
from router.state import Fleet, Group, Variant


def fleet(*variants: RuntimeVariant, **config: object) -> Fleet:
    return Fleet(Runtime(config=Config.model_validate(config), variants=variants), {"KEY": "s3cret"}, {})


def spec(precision: str = "int8", replicas: int = 1, **fields: object) -> RuntimeVariant:
    urls = tuple(f"http://127.0.0.1:{9000 + i}" for i in range(replicas))
    defaults = {"group": "g", "variant": precision, "precision": precision, "urls": urls, "served_model": "m"}
    return RuntimeVariant.model_validate({**defaults, **fields})


def ready(variant: Variant, *indices: int) -> None:
    for i in indices or range(len(variant.replicas)):
        variant.replicas[i].mark_ready(0.0)


def only(**fields: object) -> Variant:
    return fleet(spec(**fields)).groups["g"].variants["int8"]  # type: ignore[arg-type]


async def test_a_variant_lives_while_one_replica_would_take_a_request() -> None:
    v = only(replicas=2)
    assert not v.state(0.0).live
    assert v.pick(0.0) is None
    ready(v, 1)
    assert v.state(0.0).live
    assert v.pick(0.0) is v.replicas[1]
    assert not v.state(0.0, [v.replicas[1]]).live
    assert v.pick(0.0, [v.replicas[1]]) is None
    v.replicas[1].cool_down(0.0, 5.0)
    assert not v.state(1.0).live


async def test_a_draining_replica_takes_no_more() -> None:
    v = only()
    ready(v)
    v.replicas[0].draining = True
    assert v.pick(0.0) is None


async def test_the_least_loaded_replica_is_picked_and_its_speed_told() -> None:
    v = only(replicas=3)
    ready(v)
    for r, inflight, itl in zip(v.replicas, (5, 1, 3), (0.1, 0.2, 0.3), strict=True):
        r.inflight = inflight
        r.estimator.observe_decode(1.0, itl)
    assert v.pick(0.0) is v.replicas[1]
    speed = v.state(0.0).speed
    assert speed is not None
    assert speed == v.replicas[1].speed(0.0, 10.0)


async def test_equal_replicas_take_turns() -> None:
    v = only(replicas=3)
    ready(v)
    assert {v.pick(0.0) for _ in range(3)} == set(v.replicas)


async def test_the_context_length_is_the_configured_one_else_the_longest_told() -> None:
    v = only(replicas=2)
    assert v.max_model_len is None
    v.replicas[0].max_model_len, v.replicas[1].max_model_len = 512, 2048
    assert v.state(0.0).max_model_len == 2048
    assert only(max_model_len=100).max_model_len == 100


async def test_the_state_holds_what_the_configuration_says() -> None:
    state = only(price=3.0, last_resort=True).state(0.0)
    assert (state.name, state.precision, state.price, state.last_resort) == ("int8", "int8", 3.0, True)


async def test_a_servers_own_key_goes_into_its_headers_only() -> None:
    groups = fleet(spec("int8", api_key_env="KEY"), spec("int4", api_key_env="ABSENT"), spec("fp16")).groups
    headers = {n: v.replicas[0].headers for n, v in groups["g"].variants.items()}
    assert headers == {"int8": [(b"authorization", b"Bearer s3cret")], "int4": [], "fp16": []}


async def test_a_groups_thresholds_lie_over_the_general_ones_and_these_over_the_recommended() -> None:
    backends = [{"kind": "openai", "precision": "int8", "urls": ["http://h"]}]
    groups = {"g": {"thresholds": {"int4": 0.1}, "scenario": "batch", "backends": backends}}
    config = Config.model_validate({"groups": groups}).model_copy(update={"thresholds": {"int8": 0.4}})
    variants = (spec("int8"), spec("int4", group="other"))
    found = Fleet(Runtime.model_construct(config=config, variants=variants), {}, {"fp8": 0.7, "int8": 0.6, "int4": 0.3})
    assert found.groups["g"].thresholds == {"fp8": 0.7, "int8": 0.4, "int4": 0.1}
    assert found.groups["other"].thresholds == {"fp8": 0.7, "int8": 0.4, "int4": 0.3}
    assert (found.groups["g"].scenario, found.groups["other"].scenario) == ("batch", "realtime")


async def test_scenarios_are_in_seconds() -> None:
    scenarios = fleet(spec()).scenarios
    assert sorted(scenarios) == ["batch", "edge", "realtime"]
    assert scenarios["realtime"].ttft_s == pytest.approx(1.0)
    assert scenarios["batch"].ttft_s is None


async def test_retry_after_is_the_smallest_wait_of_all_replicas() -> None:
    group = fleet(spec("int8", 2), spec("int4")).groups["g"]
    int8, int4 = group.variants["int8"], group.variants["int4"]
    assert group.retry_after_s(0.0, [int8, int4]) == 5.0
    ready(int8)
    ready(int4)
    int8.replicas[0].cool_down(0.0, 30.0)
    int8.replicas[1].cool_down(0.0, 12.0)
    int4.replicas[0].cool_down(0.0, 20.0)
    assert group.retry_after_s(2.0, [int8, int4]) == 10.0
    assert group.retry_after_s(2.0, [int4]) == 18.0
    for _ in range(3):
        int8.replicas[1].failure(2.0, "x")
    assert group.retry_after_s(2.0, [int8]) == 2.0
    assert group.retry_after_s(2.0, []) == 5.0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 10**6), st.integers(0, 10**6)), max_size=30))
def test_learnt_lengths_stay_sane(answers: list[tuple[float, int, int]]) -> None:
    group = Group("g", {}, {}, "realtime")
    for units, prompt, output in answers:
        group.learn_lengths(units, prompt, output)
    assert group.expected_output_tokens >= 0
    assert 0.125 <= group.prompt_tokens(1e6) / 1e6 <= 8
    assert group.prompt_tokens(0.0) == 1


def test_lengths_are_learnt() -> None:
    group = Group("g", {}, {}, "realtime")
    for _ in range(300):
        group.learn_lengths(100.0, 150, 40)
    assert group.prompt_tokens(1000.0) == 1500
    assert abs(group.expected_output_tokens - 40) < 1


async def test_closing_a_fleet_closes_every_pool() -> None:
    found = fleet(spec("int8", 2))
    assert len(found.variants()) == 1
    found.close()
    assert all(r.pool._closed for v in found.variants() for r in v.replicas)

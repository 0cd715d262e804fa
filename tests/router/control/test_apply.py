"""What a document makes of a worker's configuration, and what it may not."""

from __future__ import annotations

from typing import Any

import pytest

from router.config.runtime import Runtime, RuntimeVariant
from router.config.schema import Config
from router.control.apply import BadDocument, next_runtime
from router.control.document import Canary, ControlDocument, GroupTuning

BACKENDS = [
    {"precision": "fp16", "urls": ["http://h:1", "http://h:2"]},
    {"precision": "int8", "kind": "vllm", "vllm": {"max_num_seqs": 8}},
]
BASE = Runtime(
    config=Config.model_validate({"groups": {"g": {"backends": BACKENDS}}, "thresholds": {"int8": 0.2}}),
    variants=(
        RuntimeVariant(
            group="g", variant="fp16", precision="fp16", urls=("http://h:1", "http://h:2"), served_model="g"
        ),
        RuntimeVariant(
            group="g",
            variant="int8",
            precision="int8",
            urls=("http://h:3",),
            served_model="m",
            kind="vllm",
            revision="r",
        ),
    ),
)


def after(config: dict[str, Any], **more: Any) -> Runtime:
    return next_runtime(BASE, ControlDocument(version=1, config=config, **more))


def mistakes(config: dict[str, Any], **more: Any) -> dict[str, str]:
    with pytest.raises(BadDocument) as caught:
        after(config, **more)
    return {m.field: m.message for m in caught.value.mistakes}


def test_an_empty_change_is_the_file() -> None:
    assert after({}) is BASE


def test_a_patch_lies_over_the_file() -> None:
    made = after({"thresholds": {"int4": 0.1}, "scenarios": {"batch": {"e2e_ms": 9000}}})
    assert made.config.thresholds == {"int8": 0.2, "int4": 0.1}
    assert made.config.scenarios.batch.e2e_ms == 9000
    assert made.config.scenarios.realtime == BASE.config.scenarios.realtime
    assert made.variants == BASE.variants


def test_null_takes_out_or_is_the_value_where_the_field_has_one() -> None:
    made = after({"thresholds": {"int8": None}, "scenarios": {"realtime": {"ttft_ms": None}}})
    assert made.config.thresholds == {}
    assert made.config.scenarios.realtime.ttft_ms is None


def test_replicas_follow_the_configuration() -> None:
    one = {"precision": "fp16", "urls": ["http://h:2/v1", "http://h:9"]}
    made = after({"groups": {"g": {"backends": [one, BASE.config.groups["g"].backends[1].model_dump(mode="json")]}}})
    assert made.variants[0].urls == ("http://h:2", "http://h:9")
    assert made.variants[1] == BASE.variants[1]


def test_a_started_variant_keeps_its_server() -> None:
    cheaper = {**BACKENDS[1], "price": 0.5}
    made = after({"groups": {"g": {"backends": [BACKENDS[0], cheaper]}}})
    assert made.variants[1] == BASE.variants[1].model_copy(update={"price": 0.5})
    other = {**BACKENDS[1], "vllm": {"max_num_seqs": 9}}
    assert "bitgear up" in mistakes({"groups": {"g": {"backends": [BACKENDS[0], other]}}})["groups.g.backends[1]"]
    new = {"groups": {"h": {"backends": [{"precision": "int4", "kind": "simulator"}]}}}
    assert "groups.h.backends[0]" in mistakes(new)


def test_a_group_can_come_and_go() -> None:
    made = after({"groups": {"h": {"backends": [{"precision": "int4", "urls": ["http://h:7"]}]}}})
    assert [v.pinned for v in made.variants] == ["g@fp16", "g@int8", "h@int4"]
    assert "groups" in mistakes({"groups": {"g": None}})


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"server": {"port": 1}}, "server.port"),
        ({"server": {"workers": 7}}, "server.workers"),
        ({"admin": {"host": "0.0.0.0"}}, "admin.host"),
        ({"redis": {"url": "redis://h:1"}}, "redis.url"),
        ({"events": {"stream": "x"}}, "events.stream"),
        ({"cache": {"enabled": False}}, "cache.enabled"),
        ({"local": {"model": "x"}}, "local.model"),
    ],
)
def test_what_needs_a_restart_is_refused_by_name(patch: dict[str, Any], field: str) -> None:
    assert "start again" in mistakes(patch)[field]


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"thresholds": {"int8": 7}}, "thresholds.int8"),
        ({"thresholds": {"int3": 0.1}}, "thresholds.int3"),
        ({"scenarios": {"realtime": {"ttft_ms": "soon"}}}, "scenarios.realtime.ttft_ms"),
        ({"nonsense": 1}, "nonsense"),
        ({"groups": {"g": {"backends": []}}}, "groups.g.backends"),
        ({"timeouts": 3}, "timeouts"),
    ],
)
def test_what_is_wrong_is_named(patch: dict[str, Any], field: str) -> None:
    found = mistakes(patch)
    assert field in found
    assert all(found.values())


@pytest.mark.parametrize(
    ("tuning", "field"),
    [
        (GroupTuning(thresholds={"int8": 1.5}), "groups.g.thresholds.int8"),
        (GroupTuning(bounds={"int8": (0.5, 0.1)}), "groups.g.bounds.int8"),
        (GroupTuning(canary=Canary(share=0.1, thresholds={"int8": -1}, since=1)), "groups.g.canary.thresholds.int8"),
    ],
)
def test_tuned_thresholds_are_checked_too(tuning: GroupTuning, field: str) -> None:
    assert list(mistakes({}, groups={"g": tuning})) == [field]

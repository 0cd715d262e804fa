"""Groups from the local model, simulated twins, variants as URLs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.processes import PlanError, ProcessSpec, VariantPlan
from router.cli.resolve import local_group_name, parse_precisions, variants, with_groups
from router.config.schema import Config

CONFIGURED = Config.model_validate({
    "groups": {
        "g": {
            "backends": [
                {"precision": "bf16", "urls": ["http://a:1/v1/", "http://b:1"], "model": "Served", "api_key_env": "KEY"},
                {"precision": "int4", "kind": "vllm", "price": 2, "max_model_len": 100},
                {"precision": "fp16", "name": "hosted", "kind": "litellm", "litellm": {"target": "openai/x"}},
            ]
        }
    }
})  # fmt: skip


def plan(variant: str, kind: str, precision: str, *urls: str) -> VariantPlan:
    specs = tuple(ProcessSpec(f"g@{variant}/{n}", ("x",), url) for n, url in enumerate(urls))
    return VariantPlan("g", variant, precision, kind, specs, served_model="g")


def test_no_groups_serve_the_local_model() -> None:
    config = with_groups(Config())
    assert list(config.groups) == ["smollm2-135m"]
    group = config.groups["smollm2-135m"]
    assert group.base_model == "smollm2-135m"
    assert [(b.variant, b.kind) for b in group.backends] == [("fp16", "vllm"), ("int8", "vllm"), ("int4", "vllm")]


def test_a_named_model_and_precisions() -> None:
    config = with_groups(Config(), model="Qwen/Qwen3-8B", precisions=("bf16", "int4"), simulate=True)
    group = config.groups["Qwen3-8B"]
    assert group.base_model == "Qwen/Qwen3-8B"
    assert [(b.variant, b.kind) for b in group.backends] == [("bf16", "simulator"), ("int4", "simulator")]


def test_a_named_model_beside_configured_groups_is_refused() -> None:
    with pytest.raises(PlanError, match=r"has groups \(g\)"):
        with_groups(CONFIGURED, model="x")
    assert with_groups(CONFIGURED) == CONFIGURED


def test_simulate_makes_a_twin_of_every_variant() -> None:
    backends = with_groups(CONFIGURED, simulate=True).groups["g"].backends
    assert [b.kind for b in backends] == ["simulator"] * 3
    assert [b.variant for b in backends] == ["bf16", "int4", "hosted"]
    assert all(not b.urls and b.api_key_env is None for b in backends)


def test_variants_in_configured_order() -> None:
    plans = [
        plan("hosted", "litellm", "fp16", "http://127.0.0.1:3"),
        plan("int4", "vllm", "int4", "http://127.0.0.1:2"),
    ]
    first, second, third = variants(CONFIGURED, plans)
    assert (first.urls, first.served_model, first.api_key_env) == (("http://a:1", "http://b:1"), "Served", "KEY")
    assert (second.urls, second.price, second.max_model_len) == (("http://127.0.0.1:2",), 2, 100)
    assert (third.variant, third.last_resort, first.last_resort) == ("hosted", True, False)
    assert not any(v.simulated for v in (first, second, third))


def test_a_launched_kind_without_a_plan_says_which_command_starts_it() -> None:
    with pytest.raises(PlanError, match=r"g@int4 is of kind vllm.*bitgear up"):
        variants(CONFIGURED, [])


def test_simulated_variants_are_marked() -> None:
    config = with_groups(Config(), model="g", precisions=("int4",), simulate=True)
    (only,) = variants(config, [plan("int4", "simulator", "int4", "http://127.0.0.1:1")])
    assert only.simulated


@pytest.mark.parametrize(
    ("model", "name"),
    [("a/b", "b"), ("/x/y/", "y"), ("tiny", "tiny"), ("me@home", "me-home"), ("/", "model"), ("..", "..")],
)
def test_group_name(model: str, name: str) -> None:
    assert local_group_name(model) == name


@pytest.mark.parametrize("text", ["", ",", "int9", "int4,int4", "fp16,,x"])
def test_precisions_that_are_none(text: str) -> None:
    with pytest.raises(PlanError, match="--precisions"):
        parse_precisions(text)


def test_precisions_with_spaces() -> None:
    assert parse_precisions(" fp16, int4 ") == ("fp16", "int4")


@given(st.text(max_size=20))
def test_precisions_or_a_plan_error(text: str) -> None:
    try:
        found = parse_precisions(text)
    except PlanError:
        return
    assert found

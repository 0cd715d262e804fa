"""From a request to what the policy sees: lengths, risks, and the state of this moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from classifier import Risks
from router.config.loop import ExplorationConfig
from router.config.runtime import Runtime, RuntimeVariant
from router.decision import CanaryArm, Exploration
from router.proxy.deciding import Decider, Question
from router.proxy.explain import explain
from router.proxy.resolve import Directives, resolve
from router.proxy.surface import CHAT, ENDPOINTS
from router.state import Fleet


class Fixed:
    """Always the same risks."""

    def risk(self, request: Mapping[str, object]) -> Risks:
        return Risks({"int8": 0.1, "int4": 0.4}, 0.05, "test")


@pytest.fixture
async def fleet() -> Fleet:
    variants = tuple(
        RuntimeVariant.model_validate(
            {"group": "g", "variant": p, "precision": p, "urls": [f"http://127.0.0.1:{n}"], "served_model": "m"}
        )
        for n, p in enumerate(("fp16", "int8", "int4"), 9000)
    )
    found = Fleet(Runtime(variants=variants), {}, {})
    found.groups["g"].thresholds = {"int8": 0.5, "int4": 0.2}
    for variant in found.variants():
        variant.replicas[0].mark_ready(0.0)
    return found


def question(fleet: Fleet, body: dict[str, Any], path: bytes = b"/v1/chat/completions", **said: Any) -> Question:
    directives = Directives("id", **said)
    target = resolve("g", directives, fleet)
    return Decider(Fixed(), "adaptive", "v9").question(body, ENDPOINTS[path], target, directives)


TEXT = {"messages": [{"role": "user", "content": "x" * 400}]}


async def test_lengths_are_estimated_and_bounded_by_the_client(fleet: Fleet) -> None:
    facts = question(fleet, TEXT, max_risk=0.3, precision="int8").facts
    assert (facts.prompt_tokens, facts.least_prompt_tokens, facts.output_tokens) == (100, 25, 200)
    assert (facts.max_tokens, facts.pin, facts.max_risk) == (None, "int8", 0.3)
    assert question(fleet, {**TEXT, "max_tokens": 5}).facts.output_tokens == 5
    assert question(fleet, {**TEXT, "max_tokens": 5000}).facts.output_tokens == 200
    assert question(fleet, {**TEXT, "max_tokens": 0}).facts.output_tokens == 1
    assert question(fleet, {**TEXT, "max_tokens": -7}).facts.output_tokens == 1


async def test_the_decision_is_the_policys_on_the_state_of_now(fleet: Fleet) -> None:
    decider = Decider(Fixed(), "adaptive", "v9")
    asked = question(fleet, TEXT)
    first = decider.decide(asked, 1.0)
    assert (first.variant, first.reason, first.version) == ("int8", "within_limits", "v9")
    int8 = fleet.groups["g"].variants["int8"].replicas[0]
    assert decider.decide(asked, 1.0, [int8]).variant == "fp16"
    int8.cool_down(1.0, 10.0)
    assert decider.decide(asked, 2.0).variant == "fp16"
    assert decider.decide(asked, 12.0).variant == "int8"


FULL = Exploration(0.2, 1.0)


async def test_a_recorded_draw_decides_the_same_again_and_retries_explore_nothing(fleet: Fleet) -> None:
    decider = Decider(Fixed(), "adaptive", "v9", FULL)
    asked = decider.question(TEXT, CHAT, resolve("g", Directives("id"), fleet), Directives("id"))
    assert 0.0 <= asked.draw < 1.0
    assert 0.0 <= asked.dice < 1.0
    asked = asked._replace(dice=0.19)
    first = decider.decide(asked, 1.0)
    assert (first.variant, first.reason, first.explored) == ("int4", "explored", True)
    assert [round(p, 4) for p in first.propensities] == [0.0667, 0.8667, 0.0667]
    assert decider.decide(asked, 1.0) == first
    int4 = fleet.groups["g"].variants["int4"].replicas[0]
    again = decider.decide(asked, 1.0, [int4])
    assert (again.variant, again.propensity, again.explored) == ("int8", 1.0, False)


async def test_pins_vectors_and_the_cautious_policy_explore_nothing(fleet: Fleet) -> None:
    decider = Decider(Fixed(), "adaptive", "v9", FULL)
    pinned = resolve("g@int8", Directives("id"), fleet)
    body: dict[str, Any] = {"input": "x"}
    vectors = decider.question(
        body, ENDPOINTS[b"/v1/embeddings"], resolve("g", Directives("id"), fleet), Directives("id")
    )
    cautious = Decider(Fixed(), "full_precision", "v9", FULL)
    for asked, by in (
        (decider.question(TEXT, CHAT, pinned, Directives("id")), decider),
        (vectors, decider),
        (cautious.question(TEXT, CHAT, resolve("g", Directives("id"), fleet), Directives("id")), cautious),
    ):
        found = by.decide(asked._replace(dice=0.19), 1.0)
        assert (found.explored, found.propensity, sum(found.propensities)) == (False, 1.0, 1.0)


async def test_the_groups_canary_has_its_own_thresholds_and_version(fleet: Fleet) -> None:
    group = fleet.groups["g"]
    group.version, group.canary = "4", CanaryArm(0.1, {"int8": 0.0, "int4": 0.0}, "5-canary")
    decider = Decider(Fixed(), "adaptive", "v9")
    asked = question(fleet, TEXT)
    trial, stable = decider.decide(asked._replace(draw=0.05), 1.0), decider.decide(asked._replace(draw=0.1), 1.0)
    assert (trial.variant, trial.version, trial.arm) == ("fp16", "5-canary", "canary")
    assert (stable.variant, stable.version, stable.arm) == ("int8", "4", "stable")
    assert (trial.thresholds, stable.thresholds) == ({"int8": 0.0, "int4": 0.0}, {"int8": 0.5, "int4": 0.2})


async def test_exploration_is_on_by_itself_only_where_tuning_is() -> None:
    assert ExplorationConfig().effective_share("off") == 0.0
    assert ExplorationConfig().effective_share("manual") == 0.02
    assert ExplorationConfig(share=0.0).effective_share("automatic") == 0.0


async def test_vectors_of_two_precisions_never_meet(fleet: Fleet) -> None:
    asked = question(fleet, {"input": "x"}, b"/v1/embeddings")
    decision = Decider(Fixed(), "adaptive", "v9").decide(asked, 1.0)
    assert (decision.variant, decision.reason) == ("fp16", "full_precision")
    assert asked.facts.output_tokens == 1


async def test_an_explanation_names_every_variant(fleet: Fleet) -> None:
    asked = question(fleet, TEXT, max_risk=0.3)
    told = explain(Decider(Fixed(), "adaptive", "v9").decide(asked, 1.0), asked)
    assert (told["variant"], told["policy_version"], told["max_risk"]) == ("int8", "v9", 0.3)
    assert told["risks"] == {"int8": 0.1, "int4": 0.4}
    assert {c["variant"]: (c["risk"], c["allowed"]) for c in told["candidates"]} == {
        "fp16": (0.0, True),
        "int8": (0.1, True),
        "int4": (0.4, False),
    }


async def test_an_unknown_policy_is_refused_at_the_start() -> None:
    with pytest.raises(KeyError):
        Decider(Fixed(), "nope", "v1")


def test_chat_generates() -> None:
    assert CHAT.generates

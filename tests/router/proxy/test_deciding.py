"""From a request to what the policy sees: lengths, risks, and the state of this moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from classifier import Risks
from router.config.runtime import Runtime, RuntimeVariant
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

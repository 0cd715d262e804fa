"""The default policy, over any inputs and in the situations it was made for."""

from __future__ import annotations

import random

import pytest

from router.decision import POLICIES, Decision, Inputs, RequestFacts, Scenario, Speed, VariantState
from router.decision.policies.adaptive import decide
from tests.router.decision.draws import ODD, draw_inputs, draw_speed, draw_table

ROUNDS = 4000
FULL = ("fp32", "fp16", "bf16")


def rank(of: Inputs, decision: Decision) -> float:
    return next(v.rank for v in of.variants if v.name == decision.variant)


def many(start: int = 0) -> list[Inputs]:
    return [draw_inputs(random.Random(seed)) for seed in range(start, start + ROUNDS)]


def within_bound(of: Inputs, risk: float) -> bool:
    return of.request.max_risk is None or risk <= of.request.max_risk


def test_raising_thresholds_never_moves_a_request_to_a_higher_precision() -> None:
    moved = 0
    for seed in range(5 * ROUNDS):
        before = draw_inputs(random.Random(seed))
        raised = draw_table(random.Random(-seed - 1))
        names = {*before.thresholds, *raised}
        thresholds = {p: max(before.thresholds.get(p, 0.0), raised.get(p, 0.0)) for p in names}
        after = before._replace(thresholds=thresholds)
        first, second = decide(before), decide(after)
        assert (first.variant is None) == (second.variant is None), (before, thresholds)
        if first.variant is not None:
            assert rank(after, second) <= rank(before, first), (before, thresholds)
            moved += rank(after, second) < rank(before, first)
    assert moved > ROUNDS / 50, "the inputs hardly ever make a difference"


def test_the_same_inputs_give_the_same_decision_in_whatever_order_the_variants_stand() -> None:
    for seed, asked in enumerate(many()):
        first = decide(asked)
        assert decide(asked) == first
        shuffled = random.Random(seed).sample(asked.variants, len(asked.variants))
        assert decide(asked._replace(variants=tuple(shuffled))).variant == first.variant, asked


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_dead_variant_is_never_chosen_and_a_live_one_is_found(policy: str) -> None:
    for asked in many():
        decision = POLICIES[policy](asked)
        if decision.variant is not None:
            assert next(v.live for v in asked.variants if v.name == decision.variant), asked
            continue
        pin = asked.request.pin
        could = [c for c in decision.candidates if c.live and within_bound(asked, c.risk) and pin in (None, c.variant)]
        assert could == [], asked
        assert decision.reason in ("none_live", "max_risk_unavailable", "pinned_unavailable")


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_the_clients_bound_on_risk_is_never_exceeded(policy: str) -> None:
    for asked in many():
        decision = POLICIES[policy](asked)
        if decision.variant is None or asked.request.max_risk is None:
            continue
        assert within_bound(asked, decision.risk), asked
        chosen = next(v for v in asked.variants if v.name == decision.variant)
        reference = max([v.rank for v in asked.variants if not v.last_resort] or [v.rank for v in asked.variants])
        if chosen.rank < reference:
            told = asked.risks.get(chosen.precision, 0.0 if chosen.precision in FULL else 1.0)
            assert within_bound(asked, told), asked


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_pin_is_honoured_or_refused(policy: str) -> None:
    for asked in many():
        pin = asked.request.pin
        if pin is None:
            continue
        decision = POLICIES[policy](asked)
        assert decision.variant in (pin, None), asked
        assert decision.reason in ("pinned", "pinned_unavailable", "max_risk_unavailable")
        assert (decision.variant is None) == (decision.reason != "pinned")


def test_a_choice_within_limits_is_allowed_in_time_fits_and_is_the_cheapest() -> None:
    seen = 0
    for asked in many():
        decision = decide(asked)
        if decision.reason != "within_limits":
            continue
        seen += 1
        chosen = next(c for c in decision.candidates if c.variant == decision.variant)
        assert (chosen.allowed, chosen.in_time, chosen.fits) == (True, True, True), asked
        rivals = [
            (v, c)
            for v, c in zip(asked.variants, decision.candidates, strict=True)
            if c.live and c.allowed and c.in_time and c.fits and not v.last_resort and within_bound(asked, c.risk)
        ]
        if asked.scenario.prefer == "cheapest":
            assert chosen.cost == min(c.cost for _, c in rivals), asked
        else:
            assert rank(asked, decision) == min(v.rank for v, _ in rivals), asked
    assert seen > ROUNDS / 10


def test_a_last_resort_serves_only_when_no_other_can() -> None:
    seen = 0
    for asked in many():
        decision = decide(asked)
        chosen = next((v for v in asked.variants if v.name == decision.variant), None)
        if chosen is None or not chosen.last_resort or decision.reason in ("too_long_for_all", "pinned"):
            continue
        seen += 1
        assert decision.reason == "last_resort"
        for v, c in zip(asked.variants, decision.candidates, strict=True):
            assert v.last_resort or not (c.live and c.fits and within_bound(asked, c.risk)), asked
    assert seen > 10


def test_broken_figures_never_raise_nor_come_out_as_nan() -> None:
    for seed, plain in enumerate(many()):
        rng = random.Random(-seed - 1)
        asked = plain._replace(
            risks=draw_table(rng, ODD),
            thresholds=draw_table(rng, ODD),
            variants=tuple(v._replace(speed=draw_speed(rng, ODD)) for v in plain.variants),
        )
        decision = decide(asked)
        assert decide(asked) == decision
        for c in decision.candidates:
            assert 0.0 <= c.risk <= 1.0
            assert 0.0 <= c.threshold <= 1.0
            assert not {c.ttft_s != c.ttft_s, c.e2e_s != c.e2e_s, c.cost != c.cost} & {True}


@pytest.mark.parametrize(
    ("risks", "thresholds"),
    [
        ({"int8": float("nan"), "int4": float("nan")}, {"int8": 0.9}),
        ({"int8": 0.5, "int4": 0.9}, {"int8": float("nan"), "int4": float("nan")}),
    ],
)
def test_a_nan_counts_as_the_worst_risk_and_the_strictest_threshold(
    risks: dict[str, float], thresholds: dict[str, float]
) -> None:
    assert decide(Inputs(CHAT, risks, thresholds, THREE, Scenario("s"))).variant == "fp16"


THREE = (
    VariantState("fp16", "fp16", 16, True, Speed(0, 0.2, 0, 0.05)),
    VariantState("int8", "int8", 8, True, Speed(0, 0.1, 0, 0.03)),
    VariantState("int4", "int4", 4, True, Speed(0, 0.1, 0, 0.02)),
)
CHAT = RequestFacts(prompt_tokens=100, output_tokens=100)
THRESHOLDS = {"int8": 0.5, "int4": 0.2}
EASY, HALF, HARD = {"int8": 0.05, "int4": 0.1}, {"int8": 0.3, "int4": 0.6}, {"int8": 0.7, "int4": 0.9}


def ask(
    risks: dict[str, float],
    variants: tuple[VariantState, ...] = THREE,
    scenario: Scenario | None = None,
    request: RequestFacts = CHAT,
) -> tuple[str | None, str]:
    decision = decide(
        Inputs(request, risks, THRESHOLDS, variants, scenario or Scenario("realtime", 1.0, 15.0, "quality"))
    )
    return decision.variant, decision.reason


def change(variant: str, **fields: object) -> tuple[VariantState, ...]:
    return tuple(v._replace(**fields) if v.name == variant else v for v in THREE)  # type: ignore[arg-type]


@pytest.mark.parametrize(("risks", "variant"), [(EASY, "int4"), (HALF, "int8"), (HARD, "fp16")])
def test_risk_decides_while_all_are_in_time(risks: dict[str, float], variant: str) -> None:
    assert ask(risks) == (variant, "within_limits")


def test_the_cheapest_is_measured_not_assumed_from_the_bits() -> None:
    busy = change("int4", speed=Speed(0, 0.1, 0, 0.04))
    assert ask(EASY, busy) == ("int8", "within_limits")
    assert ask(EASY, busy, Scenario("edge", prefer="lowest_precision")) == ("int4", "within_limits")


def test_the_cost_is_price_times_the_whole_answers_time() -> None:
    priced = change("int4", speed=Speed(0.3, 0.1, 0.0005, 0.02), price=2.0)
    decision = decide(Inputs(CHAT, EASY, THRESHOLDS, priced, Scenario("s")))
    cost = next(c.cost for c in decision.candidates if c.variant == "int4")
    # It waits 0.3 s, 0.1 + 100 * 0.0005 s go by before its first token, and 99 * 0.02 s until its last.
    assert cost == pytest.approx(2.0 * (0.3 + 0.15 + 1.98))


def test_an_unmeasured_variant_counts_as_fast_so_that_it_gets_measured() -> None:
    assert ask(HARD, change("fp16", speed=None)) == ("fp16", "within_limits")
    assert ask(EASY, change("int8", speed=None)) == ("int8", "within_limits")


def test_quality_gives_way_to_the_highest_precision_in_time() -> None:
    queued = change("fp16", speed=Speed(30, 0.2, 0, 0.05))
    assert ask(HARD, queued) == ("int8", "quality_gave_way")
    assert ask(HARD, queued, Scenario("batch", 1.0, 15.0, "speed")) == ("fp16", "speed_gave_way")


def test_when_none_is_in_time_the_fastest_serves() -> None:
    assert ask(HARD, scenario=Scenario("realtime", 0.01, None, "quality")) == ("int4", "latency_missed")


def test_a_dead_reference_leaves_the_highest_live_precision() -> None:
    assert ask(HARD, change("fp16", live=False), Scenario("batch")) == ("int8", "only_lower_precision_live")


def test_without_any_live_variant_there_is_no_choice() -> None:
    assert ask(EASY, tuple(v._replace(live=False) for v in THREE)) == (None, "none_live")
    assert ask(EASY, ()) == (None, "none_live")


def test_the_bound_on_risk_excludes_even_what_the_threshold_allows() -> None:
    bounded = CHAT._replace(max_risk=0.04)
    assert ask(EASY, request=bounded) == ("fp16", "within_limits")
    assert ask(EASY, change("fp16", live=False), request=bounded) == (None, "max_risk_unavailable")


def test_a_request_that_fits_one_variant_goes_there() -> None:
    short = change("int4", max_model_len=512)
    assert ask(EASY, short, request=CHAT._replace(least_prompt_tokens=600))[0] == "int8"
    assert ask(EASY, short, request=CHAT._replace(max_tokens=600))[0] == "int8"
    assert ask(EASY, short)[0] == "int4"


def test_a_request_too_long_for_all_goes_to_the_longest_whose_error_the_client_gets() -> None:
    variants = tuple(v._replace(max_model_len=n) for v, n in zip(THREE, (512, 2048, 1024), strict=True))
    assert ask(EASY, variants, request=CHAT._replace(least_prompt_tokens=9000)) == ("int8", "too_long_for_all")


def test_two_formats_of_one_width_are_judged_each_by_its_own_risk() -> None:
    variants = (
        VariantState("fp16", "fp16", 16, True, Speed(itl_s=0.05)),
        VariantState("a", "mxfp4", 4.5, True, Speed(itl_s=0.01)),
        VariantState("b", "nvfp4", 4.5, True, Speed(itl_s=0.02)),
    )
    chosen = decide(Inputs(CHAT, {"mxfp4": 0.9, "nvfp4": 0.1}, {"mxfp4": 0.2, "nvfp4": 0.2}, variants, Scenario("s")))
    assert chosen.variant == "b"


def test_full_precisions_below_the_reference_carry_no_risk() -> None:
    variants = (
        VariantState("slow", "fp32", 32, True, Speed(itl_s=0.1)),
        VariantState("fast", "bf16", 16, True, Speed(itl_s=0.01)),
    )
    chosen = decide(Inputs(CHAT._replace(max_risk=0.0), {"int4": 0.5}, {}, variants, Scenario("s")))
    assert (chosen.variant, chosen.risk) == ("fast", 0.0)


def test_a_precision_whose_risk_nobody_told_is_not_used() -> None:
    assert ask({}) == ("fp16", "within_limits")

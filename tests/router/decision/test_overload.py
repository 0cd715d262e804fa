"""A target has to hold for long answers too, and what nothing would answer in time may be refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.decision import POLICIES, Inputs, RequestFacts, Scenario, Speed, VariantState
from router.decision.candidates import judge
from router.decision.policies.adaptive import decide

REFUSES = Scenario("realtime", 1.0, 15.0, "quality", refuses=True)


def state(name: str, rank: float, itl_s: float, queue_s: float = 0.0, live: bool = True) -> VariantState:
    return VariantState(name, name, rank, live, Speed(queue_s, 0.1, 0.0, itl_s))


def inputs(*variants: VariantState, scenario: Scenario = REFUSES, **facts: object) -> Inputs:
    request = RequestFacts(100, 101, **facts)  # type: ignore[arg-type]
    return Inputs(request, {"int8": 0.5}, {"int8": 0.1}, variants, scenario)


@pytest.mark.parametrize(("long", "in_time"), [(0, True), (101, True), (149, True), (151, False)])
def test_a_long_answer_has_to_be_in_time(long: int, in_time: bool) -> None:
    # 0.1 s and then 0.1 s a token: 149 tokens take 14.9 s, 151 take 15.1 s.
    (candidate,) = judge(inputs(state("fp16", 16, 0.1), long_output_tokens=long))
    assert candidate.in_time is in_time
    assert candidate.e2e_s == pytest.approx(10.1)


def test_refused_only_where_nothing_is_in_time() -> None:
    late, quick = state("fp16", 16, 1.0), state("int8", 8, 0.01)
    refused = decide(inputs(late))
    assert (refused.variant, refused.reason) == (None, "overloaded")
    assert decide(inputs(late, quick)).variant == "int8"
    assert decide(inputs(late, quick._replace(live=False))).reason == "overloaded"
    assert decide(inputs(late, scenario=REFUSES._replace(refuses=False))).reason == "latency_missed"


def test_what_has_no_choice_is_not_refused() -> None:
    late = state("fp16", 16, 1.0)
    assert decide(inputs(late, pin="fp16")).variant == "fp16"
    assert decide(inputs(late._replace(last_resort=True))).reason == "last_resort"
    assert POLICIES["full_precision"](inputs(late)).variant == "fp16"
    assert decide(inputs(late, scenario=Scenario("batch", refuses=True))).variant == "fp16"


@settings(deadline=None)
@given(
    itls=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=4),
    queues=st.lists(st.floats(0.0, 3.0), min_size=4, max_size=4),
    refuses=st.booleans(),
)
def test_refusing_changes_nothing_else(itls: list[float], queues: list[float], refuses: bool) -> None:
    states = [state(f"p{i}", 16 - i, itl, queue) for i, (itl, queue) in enumerate(zip(itls, queues, strict=False))]
    serving = decide(inputs(*states, scenario=REFUSES._replace(refuses=False)))
    decision = decide(inputs(*states, scenario=REFUSES._replace(refuses=refuses)))
    if refuses and not any(c.in_time for c in serving.candidates):
        assert decision.reason == "overloaded"
        assert decision.variant is None
    else:
        assert decision == serving

"""The cautious policy takes the reference as long as it lives."""

from __future__ import annotations

import random

from router.decision import Inputs, RequestFacts, Scenario, VariantState
from router.decision.policies.full_precision import decide
from tests.router.decision.draws import draw_inputs

INT8 = VariantState("int8", "int8", 8, True)
FP16 = VariantState("fp16", "fp16", 16, True)


def test_the_highest_live_precision_that_fits_is_taken_whatever_risks_thresholds_and_targets_say() -> None:
    seen = 0
    for seed in range(4000):
        asked = draw_inputs(random.Random(seed))
        bound = asked.request.max_risk
        decision = decide(asked)
        could = [
            v.rank
            for v, c in zip(asked.variants, decision.candidates, strict=True)
            if v.live and c.fits and not v.last_resort and (bound is None or c.risk <= bound)
        ]
        if could and asked.request.pin is None:
            seen += 1
            assert next(v.rank for v in asked.variants if v.name == decision.variant) == max(could), asked
    assert seen > 1000


def test_risks_stay_as_estimated_and_hold_against_the_clients_bound() -> None:
    request = RequestFacts(10, 10, max_risk=0.3)
    asked = Inputs(request, {"int8": 0.2}, {}, (FP16._replace(live=False), INT8), Scenario("s"))
    decision = decide(asked)
    assert (decision.variant, decision.risk) == ("int8", 0.2)
    assert decide(asked._replace(risks={"int8": 0.4})).reason == "max_risk_unavailable"


def test_the_reason_names_the_policy() -> None:
    decision = decide(Inputs(RequestFacts(10, 10), {"int8": 0.0}, {"int8": 1.0}, (FP16, INT8), Scenario("s", 0.001)))
    assert (decision.variant, decision.reason) == ("fp16", "full_precision")

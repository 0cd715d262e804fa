"""What an answer cost, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from router.config.runtime import Runtime, RuntimeVariant
from router.decision import Candidate, Decision
from router.proxy.outcome import Outcome
from router.proxy.surface import CHAT
from router.state import Fleet
from router.telemetry.cost import Cost, cost_of


def candidate(variant: str, e2e_s: float, threshold: float, live: bool = True) -> Candidate:
    return Candidate(
        variant,
        variant,
        live,
        0.0,
        threshold,
        True,
        True,
        True,
        e2e_s / 10,
        e2e_s,
        e2e_s,
        16.25 if variant == "fp16" else 4.0,
    )


def served(chosen: Candidate, *others: Candidate, kind: str = "openai", price: float | None = 3.6) -> Outcome:
    specs = tuple(
        RuntimeVariant(
            group="g",
            variant=name,
            precision=name,  # type: ignore[arg-type]
            urls=("http://127.0.0.1:9",),
            served_model="m",
            gpus=gpus,
            gpu_hour=price,
            kind=kind,
        )
        for name, gpus in (("fp16", 2.0), ("int4", 1.0))
    )
    group = Fleet(Runtime(variants=specs), {}, {}).groups["g"]
    decision = Decision(chosen.variant, "within_limits", 0.0, 1.0, "realtime", "v1", (chosen, *others))
    variant = group.variants[chosen.variant]
    outcome = Outcome("id", CHAT, began=1.0, group=group, decision=decision, variant=variant)
    outcome.sent_up, outcome.ended, outcome.running, outcome.status = 2.0, 12.0, 4.0, 200
    return outcome


def test_a_share_of_the_replicas_time_and_full_precision_beside_it() -> None:
    chosen = candidate("int4", 5.0, 0.1)
    found = cost_of(served(chosen, candidate("fp16", 15.0, 1.0)), chosen, None)
    # 10 s shared by 4 on one GPU; full precision: three times as long, on two GPUs; 3.6 an hour is 0.001 a second.
    assert found == pytest.approx(Cost(2.5, 0.0025, 15.0, 0.015))


def test_full_precision_itself_saves_nothing() -> None:
    chosen = candidate("fp16", 15.0, 1.0)
    found = cost_of(served(chosen, candidate("int4", 5.0, 1.0)), chosen, None)
    assert found == pytest.approx(Cost(5.0, 0.005, 5.0, 0.005))


@pytest.mark.parametrize("full", [candidate("fp16", 0.0, 1.0), candidate("fp16", 15.0, 1.0, live=False)])
def test_without_a_prediction_nothing_is_claimed(full: Candidate) -> None:
    chosen = candidate("int4", 5.0, 0.1)
    found = cost_of(served(chosen, full), chosen, None)
    assert (found.full_gpu_s, found.full_money) == (found.gpu_s, found.money)


def test_without_a_price_gpu_seconds_alone() -> None:
    chosen = candidate("int4", 5.0, 0.1)
    assert cost_of(served(chosen, candidate("fp16", 15.0, 1.0), price=None), chosen, None) == Cost(2.5, 0.0, 15.0, 0.0)


def test_the_general_price_is_for_variants_that_name_none() -> None:
    chosen = candidate("int4", 5.0, 0.1)
    found = cost_of(served(chosen, candidate("fp16", 15.0, 1.0), price=None), chosen, 7.2)
    assert (found.money, found.full_money) == pytest.approx((0.005, 0.03))


def test_a_last_resort_is_no_reference() -> None:
    chosen = candidate("int4", 5.0, 0.1)
    resort = candidate("fp16", 15.0, 1.0)._replace(last_resort=True)
    assert cost_of(served(chosen, resort), chosen, None).full_gpu_s == 2.5


def test_a_hosted_model_and_a_request_never_sent_cost_no_gpu() -> None:
    chosen = candidate("int4", 5.0, 0.1)
    assert cost_of(served(chosen, kind="litellm"), chosen, None) == Cost()
    assert cost_of(replace(served(chosen), sent_up=0.0), chosen, None) == Cost()

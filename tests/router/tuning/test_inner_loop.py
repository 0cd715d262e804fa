"""The fast loop: a burst degrades precision before latency, and quality comes back after."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from router.config.loop import InnerLoopConfig
from router.decision.types import Scenario, Speed, VariantState
from router.tuning.inner_loop import InnerLoop, Position, Signals, predicted_share, step, thresholds

SETTINGS = InnerLoopConfig()
BOUNDS = {"int8": (0.1, 0.3), "int4": (0.0, 0.2)}


def run(position: Position, share: float, seconds: int) -> Position:
    for _ in range(seconds):
        position = step(position, Signals(share, share, 1.0), SETTINGS)
    return position


def test_a_burst_opens_within_seconds_and_calm_closes_after() -> None:
    burst = run(Position(), 0.3, 3)
    assert burst.value > 0.35
    full = run(burst, 0.3, 30)
    assert full.value == 1.0
    assert run(full, 1.0, 60).value < 0.05


def test_a_long_overload_does_not_wind_up() -> None:
    short, long = run(Position(), 0.0, 40), run(Position(), 0.0, 4000)
    assert long == short
    assert run(long, 1.0, 60).value < 0.05


def test_on_target_it_rests() -> None:
    held = Position(0.4, 0.4)
    assert run(held, SETTINGS.target, 20) == held


def test_a_predicted_miss_counts_before_it_is_measured() -> None:
    assert step(Position(), Signals(1.0, 0.2, 1.0), SETTINGS).value > 0.3
    assert step(Position(), Signals(None, 0.2, 1.0), SETTINGS).value > 0.3


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=60))
def test_thresholds_never_leave_their_bounds(shares: list[tuple[float, float]]) -> None:
    position = Position()
    for measured, predicted in shares:
        position = step(position, Signals(measured, predicted, 1.0), SETTINGS)
        moved = thresholds({"int8": 0.2, "int4": 0.1, "fp8": 0.7}, BOUNDS, position.value)
        assert all(low <= moved[p] <= high for p, (low, high) in BOUNDS.items())
        assert moved["fp8"] == 0.7


def state(name: str, rank: float, e2e_s: float, live: bool = True) -> VariantState:
    return VariantState(name, name, rank, live, Speed(0.0, e2e_s, 0.0, 0.0))


def test_the_prediction_asks_what_full_precision_would_do() -> None:
    scenario = Scenario("realtime", None, 10.0)
    calm = (state("fp16", 16, 5.0), state("int4", 4, 1.0))
    busy = (state("fp16", 16, 10.0), state("int4", 4, 1.0))
    late = (state("fp16", 16, 20.0), state("int4", 4, 1.0))
    assert [round(predicted_share(s, scenario, 1, 1), 3) for s in (calm, busy, late)] == [1.0, 0.5, 0.0]
    assert predicted_share((state("fp16", 16, 1.0, live=False),), scenario, 1, 1) == 0.0


async def test_the_runner_moves_the_group_and_leaves_it_alone_without_bounds() -> None:
    seen: list[tuple[str, Mapping[str, float]]] = []
    settings = InnerLoopConfig(interval_s=0.01)
    loop = InnerLoop(settings, lambda group: (0.0, 0.0), lambda g, t: seen.append((g, t)), logging.getLogger("t"))
    loop.follow("g", {"int8": 0.2, "int4": 0.1}, BOUNDS)
    loop.start()
    async with asyncio.timeout(60):
        while not seen or seen[-1][1]["int4"] < 0.2:
            await asyncio.sleep(0.01)
    await loop.stop()
    assert seen[-1] == ("g", {"int8": 0.3, "int4": 0.2})
    loop.follow("g", {"int8": 0.2}, {})
    count = len(seen)
    loop.tick(1.0)
    assert len(seen) == count

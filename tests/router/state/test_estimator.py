"""Learning speed: figures converge, never turn negative or NaN, and never fall as load grows."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.decision.types import Speed
from router.state.estimator import DecayingLine, SpeedEstimator, relaxed

ANY = settings(max_examples=200, deadline=None)
observations = st.lists(st.tuples(st.floats(1, 1e6), st.floats(0, 1e4)), max_size=40)


@ANY
@given(observations, st.floats(0, 1))
def test_a_line_is_never_negative_and_never_nan(points: list[tuple[float, float]], share: float) -> None:
    line = DecayingLine(slope_share=share)
    for x, y in points:
        line.add(x, y)
    a, b = line.fit()
    assert math.isfinite(a)
    assert math.isfinite(b)
    assert a >= 0
    assert b >= 0
    if points:
        assert a + b * 1e6 <= 1e6 * (1 + max(y for _, y in points))


def test_a_line_without_observations_is_zero() -> None:
    assert DecayingLine(slope_share=0.3).fit() == (0.0, 0.0)


def test_a_line_finds_base_and_slope() -> None:
    rng, line = random.Random(1), DecayingLine(slope_share=0.3)
    for _ in range(500):
        x = rng.uniform(10, 4000)
        line.add(x, 0.05 + 0.0002 * x)
    a, b = line.fit()
    # Its leaning towards the stated share never fades wholly.
    assert abs(a - 0.05) < 0.05
    assert abs(b - 0.0002) < 0.00003


def test_a_line_forgets() -> None:
    rng, line = random.Random(1), DecayingLine(slope_share=0.3)
    for slope in (0.01, 0.001):
        for _ in range(300):
            x = rng.uniform(10, 1000)
            line.add(x, slope * x)
    assert abs(line.fit()[1] - 0.001) < 0.0002


def test_while_all_x_are_alike_the_stated_share_of_the_mean_is_the_slopes() -> None:
    line = DecayingLine(slope_share=0.3)
    for _ in range(50):
        line.add(100.0, 2.0)
    a, b = line.fit()
    assert abs(b * 100 - 0.6) < 1e-9
    assert abs(a - 1.4) < 1e-9


steps = st.lists(
    st.one_of(
        st.tuples(st.just("prefill"), st.integers(0, 100_000), st.floats(0, 1000)),
        st.tuples(st.just("decode"), st.floats(0, 5000), st.floats(0, 100)),
        st.tuples(st.just("service"), st.just(0), st.floats(0, 10_000)),
    ),
    max_size=30,
)


@ANY
@given(steps, st.floats(0, 1000), st.floats(0, 1000), st.floats(0, 1000), st.floats(0, 1e6))
def test_speed_is_finite_never_negative_and_never_better_under_more_load(
    seen: list[tuple[str, float, float]], running: float, waiting: float, more: float, prompts: float
) -> None:
    estimator = SpeedEstimator()
    for kind, x, y in seen:
        if kind == "prefill":
            estimator.observe_prefill(int(x), y)
        elif kind == "decode":
            estimator.observe_decode(x, y, prompts / 1000.0)
        else:
            estimator.observe_service(y)
    now = estimator.speed(running, waiting)
    assert (now is None) == (not estimator.measured)
    if now is None:
        return
    assert all(math.isfinite(v) and v >= 0 for v in now)
    busier, queued = estimator.speed(running + more, waiting), estimator.speed(running, waiting + more)
    assert busier is not None
    assert queued is not None
    assert busier.itl_s >= now.itl_s
    assert queued.queue_s >= now.queue_s
    flooded = estimator.speed(running, waiting, prompts, prompts)
    assert flooded is not None
    assert all(math.isfinite(v) for v in flooded)
    assert flooded.queue_s >= now.queue_s
    assert flooded.itl_s >= now.itl_s


def test_the_estimates_of_a_known_server_converge() -> None:
    rng, estimator = random.Random(2), SpeedEstimator()
    for _ in range(400):
        tokens, running = rng.randrange(10, 4000), rng.randrange(1, 64)
        estimator.observe_prefill(tokens, (0.02 + 0.0001 * tokens) * rng.uniform(0.9, 1.1))
        estimator.observe_decode(running, (0.01 + 0.0002 * running) * rng.uniform(0.9, 1.1))
        estimator.observe_service(2.0)
    speed = estimator.speed(10, 30)
    assert speed is not None
    assert abs(speed.prefill_base_s + speed.prefill_per_token_s * 1000 - 0.12) < 0.02
    assert abs(speed.itl_s - 0.0122) < 0.002
    # Thirty wait, ten places, two seconds each.
    assert abs(speed.queue_s - 6.0) < 0.01


def test_answers_slowed_by_prompts_teach_the_servers_own_speed_and_prompts_that_come_are_counted_at_once() -> None:
    rng, estimator = random.Random(3), SpeedEstimator()
    for _ in range(400):
        tokens, running = rng.randrange(10, 4000), rng.randrange(1, 64)
        estimator.observe_prefill(tokens, 0.02 + 0.0001 * tokens)
        # Prompts take up to 80% of the replica's time, and more requests run while more prompts come.
        share = 0.8 * running / 64
        itl = (0.01 + 0.0002 * running) / (1.0 - share)
        estimator.observe_decode(running, itl, prompts=share * itl / 0.0001)
    idle = estimator.speed(10, 0)
    assert idle is not None
    assert idle.itl_s == pytest.approx(0.0122, rel=0.05)
    flooded = estimator.speed(10, 0, ahead=5000.0, prompts=7500.0)
    assert flooded is not None
    assert flooded.itl_s == pytest.approx(0.0122 / 0.25, rel=0.05)
    assert flooded.queue_s == pytest.approx(0.5, rel=0.02)
    drowned = estimator.speed(10, 0, prompts=1e9)
    assert drowned is not None
    assert drowned.itl_s <= 20.001 * idle.itl_s


def test_a_slow_past_fades_while_the_replica_idles() -> None:
    slow, usual = Speed(0.5, 2.0, 0.01, 0.4), Speed(0.0, 0.1, 0.001, 0.02)
    assert relaxed(slow, usual, 0.0) == pytest.approx(slow)
    half = relaxed(slow, usual, 30.0)
    assert half.prefill_base_s == pytest.approx(1.05)
    assert half.itl_s == pytest.approx(0.21)
    assert half.queue_s == 0.5
    late = relaxed(slow, usual, 3000.0)
    assert late.prefill_base_s == pytest.approx(0.1)


def test_a_fast_past_does_not_fade() -> None:
    fast, usual = Speed(0.0, 0.05, 0.0005, 0.01), Speed(0.0, 0.1, 0.001, 0.02)
    assert relaxed(fast, usual, 1000.0) == fast

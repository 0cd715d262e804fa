"""The fast engine against the simulator's own, step by step, and against closed forms."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.settings import SimulatorSettings
from backends.simulator.engine import Engine as StepEngine
from backends.simulator.engine import Sequence
from backends.simulator.roofline import Roofline
from benchmarks.world.engine import Engine, Job
from benchmarks.world.hardware import VariantSpec, saturation

ROOFLINE = Roofline.of(SimulatorSettings(), "int8")
Plan = list[tuple[float, int, int]]
"""(arrival, prompt tokens, output tokens)"""


def stepped(plan: Plan, engine: StepEngine[int]) -> list[tuple[float, float]]:
    """(first token, end) of each, by the simulator's engine."""
    sequences = [Sequence(i, prompt, output) for i, (_, prompt, output) in enumerate(plan)]
    now, coming = 0.0, 0
    while coming < len(plan) or not engine.idle:
        if engine.idle:
            now = max(now, plan[coming][0])
        coming = _admit(engine, sequences, plan, coming, now)
        step = engine.schedule(now)
        assert step is not None
        now += step.duration_s
        coming = _admit(engine, sequences, plan, coming, now)
        for sequence in engine.commit(step):
            sequence.first_token = sequence.first_token or now
            sequence.last_token = now
    return [(s.first_token or 0.0, s.last_token or 0.0) for s in sequences]


def _admit(engine: StepEngine[int], sequences: list[Sequence[int]], plan: Plan, coming: int, now: float) -> int:
    while coming < len(plan) and plan[coming][0] <= now:
        engine.add(sequences[coming], plan[coming][0])
        coming += 1
    return coming


def skipped(plan: Plan, engine: Engine) -> list[tuple[float, float]]:
    """The same by the world's engine."""
    jobs = [Job(i, prompt, output) for i, (_, prompt, output) in enumerate(plan)]
    coming = 0
    while coming < len(plan) or engine.due is not None:
        if engine.due is None or (coming < len(plan) and plan[coming][0] < engine.due):
            engine.add(jobs[coming], plan[coming][0])
            coming += 1
        else:
            engine.advance(engine.due)
    return [(j.first_token or 0.0, j.ended or 0.0) for j in jobs]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rate=st.sampled_from([2.0, 20.0, 200.0]),
    room=st.sampled_from([3400, 6000, 60_000]),
    sequences=st.sampled_from([1, 4, 16, 64]),
    budget=st.sampled_from([128, 1024, 8192]),
)
def test_the_same_times_as_the_simulators_engine(
    seed: int, rate: float, room: int, sequences: int, budget: int
) -> None:
    generator, plan, at = random.Random(seed), [], 0.0
    for _ in range(25):
        at += generator.expovariate(rate)
        plan.append((at, generator.randint(1, 3000), generator.choice([1, 2, generator.randint(3, 300)])))
    slow = StepEngine[int](
        ROOFLINE, max_num_seqs=sequences, max_num_batched_tokens=budget, kv_blocks=room, block_size=1
    )
    fast = Engine(ROOFLINE, max_num_seqs=sequences, max_num_batched_tokens=budget, kv_tokens=room)
    for expected, found in zip(stepped(plan, slow), skipped(plan, fast), strict=True):
        assert found == pytest.approx(expected, abs=1e-9)
    assert fast.preempted == slow.counts.preemptions
    assert fast.generated == slow.counts.generation_tokens
    assert fast.kv_usage == 0.0
    assert fast.running == 0


def test_both_engines_preempt_in_these_draws() -> None:
    # Else the comparison above would say nothing of preemption.
    plan = [(0.0, 1000, 200)] * 6
    fast = Engine(ROOFLINE, max_num_seqs=6, max_num_batched_tokens=8192, kv_tokens=6400)
    skipped(plan, fast)
    assert fast.preempted > 0


def test_slower_from_the_next_step_on() -> None:
    once, twice = (Engine(ROOFLINE, max_num_seqs=4, max_num_batched_tokens=64, kv_tokens=1000) for _ in range(2))
    jobs = [Job(0, 1, 101), Job(0, 1, 101)]
    for engine, job in zip((once, twice), jobs, strict=True):
        engine.add(job, 0.0)
    once.advance(once.due or 0.0)
    twice.advance(twice.due or 0.0)
    half = (once.due or 0.0) / 2
    twice.slow_down(2.0, half)
    for engine in (once, twice):
        while engine.due is not None:
            engine.advance(engine.due)
    step = (jobs[0].ended or 0.0) / 101
    assert (jobs[1].ended or 0.0) - half == pytest.approx(2 * ((jobs[0].ended or 0.0) - half), abs=2 * step)


def test_too_large_for_the_cache() -> None:
    with pytest.raises(ValueError, match="KV cache"):
        Engine(ROOFLINE, max_num_seqs=1, max_num_batched_tokens=64, kv_tokens=100).add(Job(0, 90, 20), 0.0)


@pytest.mark.parametrize("precision", ["fp16", "int8", "int4"])
def test_throughput_at_saturation_is_the_closed_form(precision: str) -> None:
    spec = VariantSpec(precision)  # type: ignore[arg-type]
    engine, generator, count = spec.engine(), random.Random(1), 5000
    for i in range(count):
        engine.add(Job(i, 500, generator.randint(1, 199)), 0.0)
    last = 0.0
    while engine.due is not None:
        last = engine.due
        engine.advance(last)
    assert count / last == pytest.approx(saturation(spec, 500, 100), rel=0.15)

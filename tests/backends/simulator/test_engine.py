"""Invariants of continuous batching, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.settings import SimulatorSettings
from backends.simulator.engine import Engine, Sequence, Step, TooLargeError
from backends.simulator.roofline import Roofline

_ROOFLINE = Roofline.of(SimulatorSettings(), "fp16")


def engine(**limits: int) -> Engine[int]:
    return Engine(
        _ROOFLINE, **{"max_num_seqs": 4, "max_num_batched_tokens": 32, "kv_blocks": 64, "block_size": 4, **limits}
    )


def run(target: Engine[int], now: float = 0.0) -> tuple[list[tuple[int, int]], float]:
    """Steps until idle: (owner, produced) in the order of the tokens, and the time at the end."""
    emitted: list[tuple[int, int]] = []
    while (step := target.schedule(now)) is not None:
        now += step.duration_s
        emitted += [(sequence.owner, sequence.produced) for sequence in target.commit(step)]
    return emitted, now


def test_one_sequence_takes_one_step_per_token_and_its_prompt() -> None:
    target = engine()
    sequence = Sequence(1, prompt_tokens=10, output_tokens=3)
    target.add(sequence, 0.0)
    emitted, now = run(target)
    assert emitted == [(1, 1), (1, 2), (1, 3)]
    assert sequence.state == "finished"
    assert target.used_blocks == 0
    assert target.counts.steps == 3
    # a prompt of 10, then one token that attends to 11, then to 12
    times = [_ROOFLINE.step_s(10, 0, 55), _ROOFLINE.step_s(1, 10, 11), _ROOFLINE.step_s(1, 11, 12)]
    assert now == pytest.approx(sum(times))


def test_a_long_prompt_is_computed_in_chunks_beside_running_sequences() -> None:
    target = engine(max_num_batched_tokens=8)
    short, long = Sequence(1, 4, 10), Sequence(2, 20, 1)
    target.add(short, 0.0)
    step = target.schedule(0.0)
    assert step is not None
    target.commit(step)
    target.add(long, 0.0)
    chunks = []
    while long.state != "finished":
        step = target.schedule(0.0)
        assert step is not None
        assert step.tokens <= 8
        chunks.append({sequence.owner: tokens for sequence, tokens in step.parts})
        target.commit(step)
    assert [chunk[2] for chunk in chunks] == [7, 7, 6]
    assert all(chunk[1] == 1 for chunk in chunks)


def test_no_more_sequences_run_than_allowed_and_the_queue_is_first_come_first_served() -> None:
    target = engine(max_num_seqs=2)
    sequences = [Sequence(number, 4, 3) for number in range(6)]
    for sequence in sequences:
        target.add(sequence, 0.0)
    first: list[int] = []
    while (step := target.schedule(0.0)) is not None:
        assert len(target.running) <= 2
        first += [sequence.owner for sequence in target.commit(step) if sequence.produced == 1]
    assert first == list(range(6))


def test_when_blocks_run_out_the_newest_starts_again_and_every_token_is_given_once() -> None:
    target = engine(kv_blocks=6, block_size=4)
    old, new = Sequence(1, 8, 9), Sequence(2, 8, 9)
    target.add(old, 0.0)
    target.add(new, 0.0)
    emitted, _ = run(target)
    assert target.counts.preemptions == new.preemptions > 0
    assert old.preemptions == 0
    assert sorted(emitted) == [(owner, k) for owner in (1, 2) for k in range(1, 10)]
    assert target.counts.prompt_tokens == 16
    assert target.used_blocks == 0


def test_a_sequence_that_can_never_fit_is_refused() -> None:
    target = engine(kv_blocks=2, block_size=4)
    target.add(Sequence(1, 8, 1), 0.0)
    with pytest.raises(TooLargeError):
        target.add(Sequence(2, 8, 2), 0.0)


def test_aborting_frees_the_blocks_even_within_a_step() -> None:
    target = engine()
    sequence = Sequence(1, 8, 5)
    target.add(sequence, 0.0)
    step = target.schedule(0.0)
    assert step is not None
    assert target.used_blocks == 2
    assert target.abort(sequence)
    assert not target.abort(sequence)
    assert target.used_blocks == 0
    assert target.commit(step) == []
    assert target.schedule(0.0) is None


def test_an_embedding_is_a_prompt_and_no_token() -> None:
    target = engine()
    target.add(Sequence(1, 8, 1, pooling=True), 0.0)
    run(target)
    assert (target.counts.prompt_tokens, target.counts.generation_tokens) == (8, 0)


@dataclass
class World:
    """What a random history did, to be compared with what the engine says."""

    target: Engine[int]
    sequences: list[Sequence[int]] = field(default_factory=list)
    tokens: dict[int, int] = field(default_factory=dict)
    pending: Step[int] | None = None

    def check(self) -> None:
        target = self.target
        live = [sequence for sequence in self.sequences if not sequence.ended]
        assert 0 <= target.used_blocks <= target.kv_blocks
        assert target.used_blocks == sum(sequence.blocks for sequence in self.sequences)
        assert {id(s) for s in (*target.waiting, *target.running)} == {id(s) for s in live}
        assert len(target.running) <= target.max_num_seqs
        for sequence in target.running:
            assert sequence.blocks * target.block_size >= sequence.computed
        assert target.counts.generation_tokens == sum(self.tokens.values())
        assert all(sequence.blocks == 0 for sequence in self.sequences if sequence.state != "running")


_ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 60), st.integers(1, 20)),
        st.tuples(st.just("abort"), st.integers(0, 30)),
        st.tuples(st.just("schedule")),
        st.tuples(st.just("commit")),
    ),
    max_size=80,
)


@settings(max_examples=300, deadline=None)
@given(
    actions=_ACTIONS,
    seqs=st.integers(1, 5),
    budget=st.integers(1, 40),
    blocks=st.integers(1, 30),
    size=st.integers(1, 8),
)
def test_nothing_is_lost_or_given_twice_whatever_happens(
    actions: list[tuple[str, int, int]], seqs: int, budget: int, blocks: int, size: int
) -> None:
    target = engine(max_num_seqs=seqs, max_num_batched_tokens=budget, kv_blocks=blocks, block_size=size)
    world = World(target)

    def commit() -> None:
        if world.pending is not None:
            for sequence in target.commit(world.pending):
                world.tokens[sequence.owner] = world.tokens.get(sequence.owner, 0) + 1
                assert sequence.produced == world.tokens[sequence.owner]
            world.pending = None

    for action, *values in actions:
        if action == "add":
            sequence = Sequence(len(world.sequences), *values)
            try:
                target.add(sequence, 0.0)
            except TooLargeError:
                continue
            world.sequences.append(sequence)
        elif action == "abort" and values[0] < len(world.sequences):
            target.abort(world.sequences[values[0]])
        elif action == "schedule" and world.pending is None:
            world.pending = target.schedule(0.0)
            assert world.pending is not None or target.idle
            if world.pending is not None:
                assert 0 < world.pending.tokens <= budget
                assert world.pending.duration_s > 0
        elif action == "commit":
            commit()
        world.check()
    commit()
    steps = 0
    while (step := target.schedule(0.0)) is not None:
        world.pending = step
        commit()
        world.check()
        steps += 1
        assert steps < 20_000
    # conservation: whoever came in either finished with every token, or was aborted
    for sequence in world.sequences:
        assert sequence.ended
        if sequence.state == "finished":
            assert world.tokens[sequence.owner] == sequence.output_tokens
    assert target.used_blocks == 0


@settings(max_examples=200, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 10)), min_size=1, max_size=12),
    seqs=st.integers(1, 4),
    budget=st.integers(1, 40),
)
def test_first_come_first_started(sizes: list[tuple[int, int]], seqs: int, budget: int) -> None:
    target = engine(max_num_seqs=seqs, max_num_batched_tokens=budget, kv_blocks=1000)
    sequences = [Sequence(number, *size) for number, size in enumerate(sizes)]
    for sequence in sequences:
        target.add(sequence, 0.0)
    now = 0.0
    while (step := target.schedule(now)) is not None:
        now += step.duration_s
        target.commit(step)
    started = [sequence.started for sequence in sequences]
    assert started == sorted(started)
    assert target.counts.prompt_tokens == sum(prompt for prompt, _ in sizes)
    assert target.counts.generation_tokens == sum(output for _, output in sizes)

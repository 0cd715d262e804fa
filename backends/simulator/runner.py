"""Runs the engine in real time, and hands every token to whoever waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from backends.settings import Precision, SimulatorSettings
from backends.simulator.engine import Engine, Sequence
from backends.simulator.metrics import EngineMetrics
from backends.simulator.roofline import Roofline, kv_bytes_per_token

_MOST_BEHIND_S = 0.25


class Owner(Protocol):
    """Receives the tokens of one sequence."""

    @property
    def finish_reason(self) -> str:
        """Why the sequence ends, in vLLM's words."""

    def token(self, sequence: Sequence[Owner]) -> None:
        """`sequence.produced` has grown by one; it may have finished."""


def build_engine(settings: SimulatorSettings, precision: Precision) -> Engine[Owner]:
    """The engine of these settings."""
    kv_bytes = settings.kv_cache_gib * 2**30
    blocks = int(kv_bytes / (kv_bytes_per_token(settings) * settings.block_size))
    return Engine(
        Roofline.of(settings, precision),
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        kv_blocks=max(1, blocks),
        block_size=settings.block_size,
    )


class Runner:
    """One engine on the event loop's clock."""

    def __init__(
        self, engine: Engine[Owner], metrics: EngineMetrics, time_scale: float, slow: Callable[[], float]
    ) -> None:
        self.engine = engine
        self.metrics = metrics
        self._time_scale = time_scale
        self._slow = slow
        self._work = asyncio.Event()

    def submit(self, sequences: list[Sequence[Owner]]) -> None:
        """Queue sequences. Raises TooLargeError, with none of them queued."""
        now = asyncio.get_running_loop().time()
        for index, sequence in enumerate(sequences):
            try:
                self.engine.add(sequence, now)
            except ValueError:
                for queued in sequences[:index]:
                    self.engine.abort(queued)
                raise
        self._work.set()

    def abort(self, sequence: Sequence[Owner]) -> None:
        """End a sequence that nobody waits for any more."""
        if self.engine.abort(sequence):
            self.metrics.ended(sequence, "abort", asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Step for ever."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            step = self.engine.schedule(loop.time())
            if step is None:
                self._work.clear()
                await self._work.wait()
                due = loop.time()
                continue
            due += step.duration_s * self._time_scale * self._slow()
            now = loop.time()
            # a timer wakes late by up to a millisecond: keep to the schedule, but never owe much
            due = max(due, now - _MOST_BEHIND_S)
            await asyncio.sleep(max(0.0, due - now))
            self._finish(self.engine.commit(step), step.tokens, loop.time())

    def _finish(self, emitted: list[Sequence[Owner]], tokens: int, now: float) -> None:
        self.metrics.step_tokens.observe(tokens)
        for sequence in emitted:
            if sequence.state == "aborted":
                continue  # another token of this step ended the answer that both belong to
            if not sequence.pooling:
                self.metrics.token(sequence, now)
            if sequence.state == "finished":
                self.metrics.ended(sequence, sequence.owner.finish_reason, now)
            sequence.owner.token(sequence)


__all__ = ["Owner", "Runner", "build_engine"]

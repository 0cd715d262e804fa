"""Continuous batching in virtual time: no clock, no I/O, no text.

It follows vLLM's scheduler: first come, first served; running sequences before waiting ones; prompts computed in
chunks within one budget of tokens per step; a KV cache of fixed blocks; when blocks run out, the newest running
sequence gives its blocks back and starts again at the head of the queue (preemption by recomputation).

`schedule` picks the next step and says how long it takes; `commit` ends it and returns the sequences that got a
token. Between the two, sequences may be added and aborted.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from backends.simulator.roofline import Roofline

Owner = TypeVar("Owner")


@dataclass(eq=False, slots=True)
class Sequence(Generic[Owner]):
    """One answer being made. Times are seconds of the caller's clock, None until they happened."""

    owner: Owner
    """Whoever receives the tokens; the engine does not look at it."""
    prompt_tokens: int
    output_tokens: int
    """Tokens after which it ends, at least 1."""
    arrived: float = 0.0
    started: float | None = None
    """First scheduled."""
    first_token: float | None = None
    last_token: float | None = None
    produced: int = 0
    computed: int = 0
    """Tokens whose keys and values are in the cache."""
    blocks: int = 0
    preemptions: int = 0
    state: str = "new"
    """new, waiting, running, finished or aborted."""
    billed: bool = False
    """Whether its prompt was counted; set beforehand for the further answers to one prompt, which is counted once."""
    pooling: bool = False
    """Whether it makes an embedding: a prompt is computed, and the one result is no token."""

    @property
    def total_tokens(self) -> int:
        """Tokens of prompt and answer so far."""
        return self.prompt_tokens + self.produced

    @property
    def ended(self) -> bool:
        """Whether it finished or was aborted."""
        return self.state in ("finished", "aborted")


@dataclass(slots=True)
class Step(Generic[Owner]):
    """One engine step: what it computes and how long it takes."""

    parts: list[tuple[Sequence[Owner], int]] = field(default_factory=list)
    """Sequences, each with the number of its tokens computed in this step."""
    tokens: int = 0
    kv_tokens: int = 0
    attended: int = 0
    duration_s: float = 0.0


@dataclass(slots=True)
class Counts:
    """Totals since the start."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    steps: int = 0
    flops: float = 0.0
    read_bytes: float = 0.0
    write_bytes: float = 0.0


class TooLargeError(ValueError):
    """A sequence that the KV cache could never hold."""


class Engine(Generic[Owner]):
    """A queue, a batch and a KV cache."""

    def __init__(
        self, roofline: Roofline, *, max_num_seqs: int, max_num_batched_tokens: int, kv_blocks: int, block_size: int
    ) -> None:
        self.roofline = roofline
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.kv_blocks = kv_blocks
        self.block_size = block_size
        self.used_blocks = 0
        self.waiting: deque[Sequence[Owner]] = deque()
        self.running: list[Sequence[Owner]] = []
        self.counts = Counts()

    @property
    def idle(self) -> bool:
        """Whether nothing waits or runs."""
        return not self.waiting and not self.running

    @property
    def kv_usage(self) -> float:
        """Share of the KV blocks in use, 0 to 1."""
        return self.used_blocks / self.kv_blocks

    def add(self, sequence: Sequence[Owner], now: float) -> None:
        """Queue `sequence`, which arrived at `now`. Raises TooLargeError if it can never fit the cache."""
        # the last token is never attended to, so it needs no slot
        if self._blocks_for(sequence.prompt_tokens + sequence.output_tokens - 1) > self.kv_blocks:
            raise TooLargeError(
                f"{sequence.prompt_tokens} prompt and {sequence.output_tokens} output tokens exceed "
                f"the KV cache of {self.kv_blocks * self.block_size} tokens"
            )
        sequence.arrived = now
        sequence.state = "waiting"
        self.waiting.append(sequence)

    def abort(self, sequence: Sequence[Owner]) -> bool:
        """End `sequence` at once and free its blocks; False if it had ended already."""
        if sequence.state == "waiting":
            self.waiting.remove(sequence)
        elif sequence.state == "running":
            self.running.remove(sequence)
        elif sequence.ended:
            return False
        self._free(sequence)
        sequence.state = "aborted"
        return True

    def schedule(self, now: float) -> Step[Owner] | None:
        """The next step, which starts at `now`; None when there is nothing to compute."""
        step: Step[Owner] = Step()
        budget = self.max_num_batched_tokens
        preempted = False
        index = 0
        while index < len(self.running) and budget > 0:
            sequence = self.running[index]
            tokens = min(sequence.total_tokens - sequence.computed, budget)
            while not self._reserve(sequence, tokens):
                preempted = True
                victim = self.running[-1]
                self._preempt(victim)
                if victim is sequence:
                    break
            if sequence.state == "running":
                budget -= self._take(step, sequence, tokens)
                index += 1
        while self.waiting and not preempted and budget > 0 and len(self.running) < self.max_num_seqs:
            sequence = self.waiting[0]
            tokens = min(sequence.total_tokens, budget)
            if not self._reserve(sequence, tokens):
                break
            self.waiting.popleft()
            self.running.append(sequence)
            sequence.state = "running"
            if sequence.started is None:
                sequence.started = now
            budget -= self._take(step, sequence, tokens)
        if not step.parts:
            return None
        step.duration_s = self.roofline.step_s(step.tokens, step.kv_tokens, step.attended)
        return step

    def commit(self, step: Step[Owner]) -> list[Sequence[Owner]]:
        """End `step`; the sequences that got one token, of which some may have finished."""
        counts = self.counts
        counts.steps += 1
        counts.flops += self.roofline.flops(step.tokens, step.attended)
        counts.read_bytes += self.roofline.read_bytes(step.kv_tokens)
        counts.write_bytes += self.roofline.kv_bytes_per_token * step.tokens
        emitted: list[Sequence[Owner]] = []
        finished = False
        for sequence, tokens in step.parts:
            if sequence.state != "running":
                continue  # aborted meanwhile
            sequence.computed += tokens
            if sequence.computed < sequence.total_tokens:
                continue  # more of its prompt to compute
            if not sequence.billed:
                sequence.billed = True
                counts.prompt_tokens += sequence.prompt_tokens
            sequence.produced += 1
            if sequence.produced == sequence.output_tokens:
                sequence.state = "finished"
                finished = True
                self._free(sequence)
            emitted.append(sequence)
        if finished:
            self.running = [sequence for sequence in self.running if sequence.state == "running"]
        counts.generation_tokens += sum(not sequence.pooling for sequence in emitted)
        return emitted

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def _reserve(self, sequence: Sequence[Owner], tokens: int) -> bool:
        """Blocks for `tokens` more tokens of `sequence`; False, and nothing taken, if there are too few."""
        more = self._blocks_for(sequence.computed + tokens) - sequence.blocks
        if more > self.kv_blocks - self.used_blocks:
            return False
        sequence.blocks += more
        self.used_blocks += more
        return True

    def _take(self, step: Step[Owner], sequence: Sequence[Owner], tokens: int) -> int:
        step.parts.append((sequence, tokens))
        step.tokens += tokens
        step.kv_tokens += sequence.computed
        # token i of the chunk attends to all that came before it and to itself
        step.attended += tokens * sequence.computed + tokens * (tokens + 1) // 2
        return tokens

    def _preempt(self, victim: Sequence[Owner]) -> None:
        self.running.pop()
        self._free(victim)
        victim.computed = 0
        victim.preemptions += 1
        victim.state = "waiting"
        self.waiting.appendleft(victim)
        self.counts.preemptions += 1

    def _free(self, sequence: Sequence[Owner]) -> None:
        self.used_blocks -= sequence.blocks
        sequence.blocks = 0


__all__ = ["Counts", "Engine", "Sequence", "Step", "TooLargeError"]

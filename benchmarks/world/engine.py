"""A continuous-batching engine in virtual time that skips the steps in which nothing is decided.

It computes the same times as `backends/simulator/engine.py` (first come, first served; chunked prefill within one
budget of tokens per step; preemption of the newest by recomputation), with the same roofline, but a run of steps that
only decode is one event: its length follows from a closed form, since each step's cost is linear in the cached tokens,
and these grow by the number of sequences with each step. A request so costs a handful of events, not one per token.

The KV cache is counted in single tokens (the other engine's `block_size` 1).
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

from backends.simulator.roofline import Roofline


@dataclass(eq=False, slots=True)
class Job:
    """One answer being made; times are seconds of virtual time, None until they happened."""

    owner: Any
    """Whoever gets the answer; the engine does not look at it."""
    prompt_tokens: int
    output_tokens: int
    """Tokens after which it ends, at least 1."""
    arrived: float = 0.0
    first_token: float | None = None
    ended: float | None = None
    produced: int = 0
    """Tokens produced before its latest prefill ended."""
    computed: int = 0
    """Of a prompt being computed: tokens that are in the cache."""
    end_step: int = -1
    """Number of the engine step that gives its last token, once it decodes; -1 before."""
    preemptions: int = 0


@dataclass(slots=True)
class _Work:
    """What the device does until `due`: one step with a prompt in it, or a run of steps that only decode."""

    began: float
    steps: int
    first_s: float
    """Duration of the first step."""
    growth_s: float
    """Each further step takes this much longer."""
    parts: list[tuple[Job, int]]
    """Prompts being computed, each with its tokens of this step."""

    def length(self, steps: int) -> float:
        return steps * self.first_s + self.growth_s * (steps * (steps - 1) / 2)

    @property
    def due(self) -> float:
        return self.began + self.length(self.steps)


class Engine:
    """One replica: a queue, a batch and a KV cache.

    A caller adds jobs (`add`) and calls `advance` at `due`, which gives back those that ended. `due` is None while it is
    idle, and changes whenever it is told something.
    """

    def __init__(self, roofline: Roofline, *, max_num_seqs: int, max_num_batched_tokens: int, kv_tokens: int) -> None:
        if max_num_seqs > max_num_batched_tokens:
            raise ValueError("a step must hold one token of each sequence")
        self.roofline = roofline
        self.max_num_seqs = max_num_seqs
        self.budget = max_num_batched_tokens
        self.kv_tokens = kv_tokens
        self.waiting: deque[Job] = deque()
        self._running: dict[Job, None] = {}
        """In the order of their start."""
        self._ends: list[tuple[int, int, Job]] = []
        self._decoding = 0
        self._kv = 0
        """Cached tokens of those that decode."""
        self._partial: Job | None = None
        """The one whose prompt is half computed; always the newest."""
        self._steps = 0
        self._pushed = 0
        self._work: _Work | None = None
        self.generated = 0
        """Tokens given out since the start."""
        self.prompted = 0
        """Prompt tokens computed since the start, those computed again included."""
        self.busy_s = 0.0
        self.preempted = 0

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._running)

    @property
    def kv_usage(self) -> float:
        """Share of the KV cache in use at the last event, in [0, 1]."""
        return (self._kv + (self._partial.computed if self._partial else 0)) / self.kv_tokens

    @property
    def due(self) -> float | None:
        """When `advance` has to be called next; None while idle."""
        return self._work.due if self._work is not None else None

    def add(self, job: Job, now: float) -> None:
        """Queue a job. Raises ValueError where the cache could never hold it."""
        if job.prompt_tokens + job.output_tokens - 1 > self.kv_tokens:
            raise ValueError(f"{job.prompt_tokens} + {job.output_tokens} tokens exceed {self.kv_tokens} of KV cache")
        job.arrived = now
        blocked = bool(self.waiting)
        self.waiting.append(job)
        if self._work is None:
            self._schedule(now)
        elif not blocked and len(self._running) < self.max_num_seqs:
            self._cut(now)

    def drop(self) -> list[Job]:
        """Forget all jobs, and give them back."""
        jobs = [*self._running, *self.waiting]
        self._running.clear()
        self.waiting.clear()
        self._ends.clear()
        self._decoding = self._kv = 0
        self._partial = self._work = None
        return jobs

    def slow_down(self, factor: float, now: float) -> None:
        """Make every step from the one after the present one on `factor` times as long as its roofline says."""
        self._cut(now)
        self.roofline = replace(self.roofline, slowdown=factor)

    def advance(self, now: float) -> list[Job]:
        """End the work that is due and begin the next; gives back the jobs that ended."""
        work = self._work
        if work is None:
            return []
        ended = self._commit(work, now)
        self._work = None
        self._schedule(now)
        return ended

    def _cut(self, now: float) -> None:
        """Let a run of steps end with the step that runs at `now`."""
        work = self._work
        if work is None or work.steps == 1:
            return
        passed = now - work.began
        a, b = work.growth_s / 2, work.first_s - work.growth_s / 2
        guess = passed / b if a == 0 else (math.sqrt(b * b + 4 * a * passed) - b) / (2 * a)
        steps = max(1, int(guess))
        while work.length(steps) <= passed:
            steps += 1
        work.steps = min(work.steps, steps)

    def _commit(self, work: _Work, now: float) -> list[Job]:
        self.busy_s += work.length(work.steps)
        self._steps += work.steps
        self._kv += self._decoding * work.steps
        self.generated += self._decoding * work.steps
        ended: list[Job] = []
        while self._ends and self._ends[0][0] <= self._steps:
            end_step, _, job = heapq.heappop(self._ends)
            if job.end_step != end_step:
                continue  # preempted meanwhile
            self._decoding -= 1
            self._kv -= job.prompt_tokens + job.output_tokens - 1
            del self._running[job]
            job.ended = now
            ended.append(job)
        for job, tokens in work.parts:
            job.computed += tokens
            self.prompted += tokens
            total = job.prompt_tokens + job.produced
            if job.computed < total:
                self._partial = job
                continue
            if job is self._partial:
                self._partial = None
            if job.first_token is None:
                job.first_token = now
            job.produced += 1
            self.generated += 1
            if job.produced == job.output_tokens:
                del self._running[job]
                job.ended = now
                ended.append(job)
                continue
            job.end_step = self._steps + job.output_tokens - job.produced
            self._pushed += 1
            heapq.heappush(self._ends, (job.end_step, self._pushed, job))
            self._decoding += 1
            self._kv += total
        return ended

    def _schedule(self, now: float) -> None:
        preempted = self._make_room()
        parts: list[tuple[Job, int]] = []
        n = self._decoding
        budget = self.budget - n
        free = self.kv_tokens - self._kv - n
        taken = attended = cached = 0
        partial = self._partial
        if partial is not None:
            free -= partial.computed
            tokens = min(partial.prompt_tokens + partial.produced - partial.computed, budget)
            if tokens > free:
                self._preempt(partial)
                preempted = True
            elif tokens > 0:
                parts.append((partial, tokens))
                taken, cached = tokens, partial.computed
                attended = tokens * partial.computed + tokens * (tokens + 1) // 2
                budget -= tokens
                free -= tokens
        while self.waiting and not preempted and budget > 0 and len(self._running) < self.max_num_seqs:
            job = self.waiting[0]
            tokens = min(job.prompt_tokens + job.produced, budget)
            if tokens > free:
                break
            self.waiting.popleft()
            self._running[job] = None
            parts.append((job, tokens))
            taken += tokens
            attended += tokens * (tokens + 1) // 2
            budget -= tokens
            free -= tokens
        if parts:
            first = self.roofline.step_s(n + taken, self._kv + cached, self._kv + n + attended)
            self._work = _Work(now, 1, first, 0.0, parts)
        elif n:
            self._work = self._run(now, n, single=preempted)

    def _run(self, now: float, n: int, *, single: bool) -> _Work:
        first = self.roofline.step_s(n, self._kv, self._kv + n)
        while self._ends[0][2].end_step != self._ends[0][0]:
            heapq.heappop(self._ends)
        steps = min(self._ends[0][0] - self._steps, (self.kv_tokens - self._kv) // n)
        growth = self.roofline.step_s(n, self._kv + n, self._kv + 2 * n) - first
        r = self.roofline
        if single or r.kv_bytes_per_token / r.bandwidth < 2 * r.attention_flops / r.attention_peak:
            # Where attention's arithmetic may overtake its reads the cost is no straight line: step by step then.
            steps = 1
        return _Work(now, steps, first, growth, [])

    def _make_room(self) -> bool:
        """Preempt the newest until each sequence that decodes has room for one more token."""
        preempted = False
        while (
            self._decoding
            and self.kv_tokens - self._kv - (self._partial.computed if self._partial else 0) < self._decoding
        ):
            self._preempt(next(reversed(self._running)))
            preempted = True
        return preempted

    def _preempt(self, job: Job) -> None:
        del self._running[job]
        if job is self._partial:
            self._partial = None
        else:
            job.produced = job.output_tokens - (job.end_step - self._steps)
            job.end_step = -1
            self._decoding -= 1
            self._kv -= job.prompt_tokens + job.produced - 1
        job.computed = 0
        job.preemptions += 1
        self.preempted += 1
        self.waiting.appendleft(job)


def kv_tokens(memory_gib: float, usable: float, overhead_gib: float, roofline: Roofline) -> int:
    """Tokens of KV cache that a device holds beside the weights: (memory * usable - overhead - weights) / bytes per token."""
    left = (memory_gib * usable - overhead_gib) * 1024**3 - roofline.weight_bytes
    return max(0, int(left / roofline.kv_bytes_per_token))


__all__ = ["Engine", "Job", "kv_tokens"]

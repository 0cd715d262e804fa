"""The figures of one place (group, variant, replica, scenario): one object a request finds with one look."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Counter, Histogram

from router.decision.types import Candidate
from router.proxy.outcome import Outcome
from router.telemetry import families as f
from router.telemetry.cost import cost_of
from router.telemetry.rates import Rates
from router.telemetry.tally import Count, Spread


class Place:
    """Everything that is counted where requests are served."""

    def __init__(self, families: f.Families, labels: tuple[str, str, str, str], gpu_hour: float | None) -> None:
        self.labels = labels
        self.rates = Rates()
        self.gpu_hour = gpu_hour
        self._counts: list[Count] = []
        self._spreads: list[Spread] = []

        def count(family: Counter) -> Count:
            self._counts.append(Count(family, labels))
            return self._counts[-1]

        def spread(family: Histogram, edges: Iterable[float]) -> Spread:
            self._spreads.append(Spread(family, tuple(edges), labels))
            return self._spreads[-1]

        self._retries = count(families.retries)
        self._prompt_tokens = count(families.prompt_tokens)
        self._completion_tokens = count(families.completion_tokens)
        self._targeted = count(families.targeted)
        self._good = count(families.good)
        self._good_tokens = count(families.good_tokens)
        self._gpu_seconds = count(families.gpu_seconds)
        self._cost = count(families.cost)
        self._full_gpu_seconds = count(families.full_gpu_seconds)
        self._full_cost = count(families.full_cost)
        self._ttft = spread(families.ttft, f.SECONDS)
        self._itl = spread(families.itl, f.ITL_SECONDS)
        self._e2e = spread(families.e2e, f.SECONDS)
        self._hold = spread(families.hold, f.SECONDS)
        self._queue = spread(families.queue, f.SECONDS)
        self._completion_speed = spread(families.completion_speed, f.SPEEDS)
        self._prompt_speed = spread(families.prompt_speed, f.SPEEDS)
        self._ttft_ratio = spread(families.ttft_ratio, f.RATIOS)
        self._e2e_ratio = spread(families.e2e_ratio, f.RATIOS)

    def add(self, outcome: Outcome, chosen: Candidate | None) -> None:
        """Count one request that a replica answered, or that none could; no answer from the cache comes here."""
        usage, generates = outcome.usage, outcome.endpoint.generates
        prompt = completion = 0
        if usage is not None:
            prompt, completion = usage
            self._prompt_tokens.pending += prompt
            self._completion_tokens.pending += completion
        if outcome.attempts > 1:
            self._retries.pending += outcome.attempts - 1
        targeted = generates and outcome.decision is not None and outcome.status != 499 and not _clients_fault(outcome)
        good = targeted and met(outcome)
        if targeted:
            self._targeted.pending += 1
            if good:
                self._good.pending += 1
                self._good_tokens.pending += completion
        self.rates.add(outcome.ended, prompt, completion, targeted, good, completion if good else 0)
        if generates and outcome.variant is not None:
            self._times(outcome, chosen, prompt, completion)

    def _times(self, outcome: Outcome, chosen: Candidate | None, prompt: int, completion: int) -> None:
        began, sent, ended, first = outcome.began, outcome.sent_up, outcome.ended, outcome.first_token_at
        if first is not None:
            self._ttft.add(first - began)
            itl = outcome.itl_s
            if itl is not None:
                self._itl.add(itl)
        cost = cost_of(outcome, chosen, self.gpu_hour)
        self._gpu_seconds.pending += cost.gpu_s
        self._cost.pending += cost.money
        self._full_gpu_seconds.pending += cost.full_gpu_s
        self._full_cost.pending += cost.full_money
        if not outcome.ok:
            return
        self._e2e.add(ended - began)
        if not sent:
            return
        self._hold.add(sent - began)
        service = ended - sent
        if completion and service > 0.0:
            self._completion_speed.add(completion / service)
        if first is not None and first > sent:
            ttft = first - sent
            if prompt:
                self._prompt_speed.add(prompt / ttft)
            self._queue.add(_queue_s(outcome, ttft, prompt) if outcome.queued else 0.0)
            if chosen is not None and chosen.ttft_s > 0.0:
                self._ttft_ratio.add(ttft / chosen.ttft_s)
        if chosen is not None and chosen.e2e_s > 0.0 and outcome.sequences == 1:
            self._e2e_ratio.add(service / chosen.e2e_s)

    def flush(self) -> None:
        """Hand on what came since the last flush."""
        for count in self._counts:
            count.flush()
        for spread in self._spreads:
            spread.flush()


def met(outcome: Outcome) -> bool:
    """Return whether a whole answer came within its scenario's targets; TTFT counts for streams alone."""
    if not outcome.ok:
        return False
    if outcome.question is None:
        return True
    scenario = outcome.question.target.scenario
    ttft = outcome.ttft_s
    if scenario.ttft_s is not None and ttft is not None and ttft > scenario.ttft_s:
        return False
    return scenario.e2e_s is None or outcome.ended - outcome.began <= scenario.e2e_s


def _clients_fault(outcome: Outcome) -> bool:
    return 400 <= outcome.status < 500 and outcome.status != 429


def _queue_s(outcome: Outcome, ttft: float, prompt_tokens: int) -> float:
    speed = outcome.replica.estimator.speed(outcome.running, 0.0) if outcome.replica is not None else None
    if speed is None:
        return 0.0
    return max(0.0, ttft - speed.prefill_base_s - speed.prefill_per_token_s * prompt_tokens)


__all__ = ["Place", "met"]

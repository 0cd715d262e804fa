"""Traffic made of public data: arrival times and lengths of a trace, risks of public prompts, quality as recorded."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.world.traffic import Arrival, Row, read_azure
from benchmarks.world.truth import Truth
from classifier import load
from classifier.data import general_prompts, precision

_TRACE = "AzureLLMInferenceTrace_{}.csv.gz"


@dataclass(frozen=True)
class Workload:
    """Requests at the trace's own pace, and what is planted behind them."""

    name: str
    rows: Sequence[tuple[Row, str, Mapping[str, float]]]
    """Row, scenario, risks."""
    thresholds: Mapping[str, float]
    """What the shipped classifier recommends."""

    @property
    def rate(self) -> float:
        """Requests/s at the trace's own pace."""
        return len(self.rows) / (self.rows[-1][0].at - self.rows[0][0].at)

    @property
    def lengths(self) -> tuple[float, float]:
        """Mean prompt and output tokens."""
        count = len(self.rows)
        return sum(r.prompt_tokens for r, _, _ in self.rows) / count, sum(
            r.output_tokens for r, _, _ in self.rows
        ) / count

    def part(self, start: int, count: int) -> Workload:
        """Return `count` rows from row `start` on, the first one at time 0. Raises ValueError where there are fewer."""
        rows = self.rows[start : start + count]
        if len(rows) < count:
            raise ValueError(f"the trace has {len(self.rows)} requests, not {start + count}")
        first = rows[0][0].at
        return replace(self, rows=[(row._replace(at=row.at - first), s, risks) for row, s, risks in rows])

    def at_rate(self, rate: float) -> list[Arrival]:
        """Return the arrivals with all gaps scaled by one factor, so that `rate` requests/s come on average."""
        factor = self.rate / rate
        return [Arrival(row.at * factor, row.prompt_tokens, row.output_tokens, risks, s) for row, s, risks in self.rows]


def workload(data: Path, name: str, *, seed: int, limit: int | None = None) -> Workload:
    """Return `chat` (the conversation trace under the realtime scenario) or `mixed` (the code trace beside it, as batch).

    A trace has no texts: each row gets the risks of a public prompt, drawn at random from five sources with equal weight
    (MT-bench, Koala and Vicuna, GSM8K, BELLE, checkable Chinese), whatever its length. `limit` cuts to the first rows.
    """
    generator = random.Random(seed)
    classifier = load()
    risks = [
        [classifier.risk(request).by_precision for request in generator.sample(requests, min(len(requests), 300))]
        for requests in general_prompts(data).values()
    ]
    traces = {"chat": [("conv", "realtime")], "mixed": [("conv", "realtime"), ("code", "batch")]}[name]
    found = [
        (row, scenario, generator.choice(generator.choice(risks)))
        for trace, scenario in traces
        for row in read_azure(data / "traces" / _TRACE.format(trace))
    ]
    found.sort(key=lambda one: one[0].at)
    return Workload(name, found[:limit], classifier.thresholds)


def truths(data: Path, seed: int) -> dict[str, Truth]:
    """Return what may be true of quality, by name; the first is the recorded one.

    `recorded`: a precision loses an answer with the classifier's risk (calibrated on the same outcomes) and wins one with
    the recorded rate. `losses only`: nothing is won. `three times`: nothing is won, and three times as much is lost.
    `blind`: each request loses the mean, so that the classifier's order is worth nothing.
    """
    rows = [row for row in precision(data) if row.task == "mmlu"]
    base = sum(row.scores["fp16"] for row in rows) / len(rows)
    gain = {p: sum(r.scores[p] > r.scores["fp16"] for r in rows) / len(rows) for p in ("int8", "int4")}
    lost = {p: sum(r.scores[p] < r.scores["fp16"] for r in rows) / len(rows) for p in ("int8", "int4")}
    return {
        "recorded": Truth(base, gain=gain, seed=seed),
        "losses only": Truth(base, seed=seed),
        "three times": Truth(base, scale={"int8": 3.0, "int4": 3.0}, seed=seed),
        "blind": Truth(base, scale={"int8": 0.0, "int4": 0.0}, shift=lost, seed=seed),
    }

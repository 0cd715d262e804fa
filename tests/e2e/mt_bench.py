"""Asking the 80 MT-bench questions through a running Bitgear, and comparing its accounts with the servers' own counters."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import openai

from backends.wire import VllmMetrics, parse_vllm_metrics

QUESTIONS = Path(__file__).parent.parent / "data" / "mt_bench.jsonl"
SCENARIOS = ("realtime", "batch", "edge")


@dataclass
class Answer:
    """One streamed answer as the client saw it."""

    question: str
    scenario: str
    decision: dict[str, str]
    finish_reason: str | None = None
    text: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass
class Report:
    """All answers, and what the servers counted meanwhile."""

    answers: list[Answer] = field(default_factory=list)
    counted: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Prompt and generated tokens by variant, as its servers' counters moved."""
    accounted: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The same, as Bitgear's own metrics moved."""

    def seen(self, variant: str) -> tuple[int, int]:
        """Return prompt and generated tokens of a variant by the usage in its answers."""
        mine = [a for a in self.answers if a.decision["variant"] == variant]
        return sum(a.prompt_tokens for a in mine), sum(a.completion_tokens for a in mine)

    def shares(self) -> dict[str, int]:
        """Return answers by variant and reason."""
        return dict(Counter(f"{a.decision['variant']}:{a.decision['reason']}" for a in self.answers))


def decision_of(header: str) -> dict[str, str]:
    """Return `x-bitgear-decision` as a mapping."""
    return dict(part.split("=", 1) for part in header.split("; "))


async def ask_all(api: str, admin: str, model: str, *, max_tokens: int, at_once: int) -> Report:
    """Ask every question once, streamed, the scenarios in turn; half of them with usage in the stream."""
    questions = [json.loads(line) for line in QUESTIONS.read_text().splitlines()]
    report = Report()
    async with httpx.AsyncClient(timeout=30) as http:
        before, before_own = await _counters(http, admin), await _own(http, admin)
        client = openai.AsyncOpenAI(base_url=api + "/v1", api_key="unused", timeout=600, max_retries=0)
        slots = asyncio.Semaphore(at_once)

        async def one(i: int, question: dict[str, object]) -> None:
            async with slots:
                report.answers.append(await _ask(client, model, i, question, max_tokens))

        await asyncio.gather(*(one(i, q) for i, q in enumerate(questions)))
        # The servers' counters move after the stream's end; wait until they stand still.
        after = await _settled(http, admin, before)
        after_own = await _own(http, admin)
    for variant, metrics in after.items():
        report.counted[variant] = (
            int(metrics.prompt_tokens - before[variant].prompt_tokens),
            int(metrics.generation_tokens - before[variant].generation_tokens),
        )
        old = before_own.get(variant, (0, 0))
        new = after_own.get(variant, (0, 0))
        report.accounted[variant] = (new[0] - old[0], new[1] - old[1])
    return report


async def _ask(client: openai.AsyncOpenAI, model: str, i: int, question: dict[str, object], max_tokens: int) -> Answer:
    scenario = SCENARIOS[i % 3]
    turns = question["turns"]
    assert isinstance(turns, list)
    raw = await client.chat.completions.with_raw_response.create(
        model=model,
        messages=[{"role": "user", "content": turns[0]}],
        max_tokens=max_tokens,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_headers={"x-bitgear-scenario": scenario},
    )
    answer = Answer(str(question["id"]), scenario, decision_of(raw.headers["x-bitgear-decision"]))
    async for chunk in raw.parse():
        if chunk.usage is not None:
            answer.prompt_tokens = chunk.usage.prompt_tokens
            answer.completion_tokens = chunk.usage.completion_tokens
        for choice in chunk.choices:
            answer.text += choice.delta.content or ""
            answer.finish_reason = choice.finish_reason or answer.finish_reason
    return answer


async def _counters(http: httpx.AsyncClient, admin: str) -> dict[str, VllmMetrics]:
    found = {}
    for variant in (await http.get(admin + "/admin/variants")).json():
        text = (await http.get(variant["replicas"][0]["url"] + "/metrics")).content
        metrics = parse_vllm_metrics(text)
        assert metrics is not None
        found[variant["variant"]] = metrics
    return found


async def _settled(http: httpx.AsyncClient, admin: str, before: dict[str, VllmMetrics]) -> dict[str, VllmMetrics]:
    last = before
    for _ in range(60):
        now = await _counters(http, admin)
        if now == last and all(m.running == 0 for m in now.values()):
            return now
        last = now
        await asyncio.sleep(0.5)
    raise AssertionError("the servers' counters never stood still")


async def _own(http: httpx.AsyncClient, admin: str) -> dict[str, tuple[int, int]]:
    text = (await http.get(admin + "/metrics")).text
    found: dict[str, list[int]] = {}
    for line in text.splitlines():
        for place, name in enumerate(("bitgear_prompt_tokens_total{", "bitgear_completion_tokens_total{")):
            if line.startswith(name):
                variant = line.split('variant="')[1].split('"')[0]
                found.setdefault(variant, [0, 0])[place] += int(float(line.rsplit(" ", 1)[1]))
    return {variant: (counts[0], counts[1]) for variant, counts in found.items()}

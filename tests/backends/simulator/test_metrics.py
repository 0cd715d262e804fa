"""What `/metrics` says is what happened, in vLLM's names."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import httpx
import pytest
from openai import AsyncOpenAI
from prometheus_client.parser import text_string_to_metric_families

from backends.settings import SimulatorSettings
from backends.simulator import Simulator
from backends.simulator.exposition import Exposition
from backends.simulator.exposition import _histogram as family_of
from backends.simulator.exposition import _text as written
from tests.backends.simulator.conftest import Start
from tests.conftest import until

_NAMES = Path(__file__).with_name("metric_names.txt").read_text(encoding="utf-8").split()


async def read(url: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    async with httpx.AsyncClient(timeout=60) as client:
        response = await client.get(f"{url}/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


_LABELS = (("engine", "0"), ("model_name", "m"))


async def test_names_and_labels_are_vllms(simulator: Start) -> None:
    running = await simulator()
    samples = await read(running.url)
    found = {
        f"{name}{{{','.join(label for label, _ in labels)}}}" for name, labels in samples if name.startswith("vllm:")
    }
    assert found - {name for name in found if name.startswith("vllm:cache_config_info")} == set(_NAMES)


async def test_counters_agree_with_usage_and_histograms_with_requests(simulator: Start) -> None:
    running = await simulator(time_scale=0.05)
    client = AsyncOpenAI(base_url=f"{running.url}/v1", api_key="x")
    prompt = completion = 0
    reasons = {"stop": 0, "length": 0}
    for number in range(12):
        answer = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": f"question {number}"}], n=1 + number % 3, max_tokens=70
        )
        assert answer.usage is not None
        prompt += answer.usage.prompt_tokens
        completion += answer.usage.completion_tokens
        for choice in answer.choices:
            reasons[choice.finish_reason] += 1
    await client.close()
    samples = await read(running.url)
    answers = sum(reasons.values())
    assert min(reasons.values()) > 0
    assert samples["vllm:prompt_tokens_total", _LABELS] == prompt
    assert samples["vllm:generation_tokens_total", _LABELS] == completion
    for reason, number in reasons.items():
        labels = tuple(sorted((*_LABELS, ("finished_reason", reason))))
        assert samples["vllm:request_success_total", labels] == number
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds",
                 "request_prefill_time_seconds", "request_decode_time_seconds", "request_inference_time_seconds"):  # fmt: skip
        assert samples[f"vllm:{name}_count", _LABELS] == answers
    assert samples["vllm:inter_token_latency_seconds_count", _LABELS] == completion - answers
    assert samples["vllm:request_generation_tokens_sum", _LABELS] == completion
    whole = samples["vllm:e2e_request_latency_seconds_sum", _LABELS]
    parts = [samples[f"vllm:request_{part}_time_seconds_sum", _LABELS] for part in ("queue", "prefill", "decode")]
    assert sum(parts) == pytest.approx(whole, rel=1e-6)
    assert samples["vllm:iteration_tokens_total_sum", _LABELS] >= prompt + completion - answers


async def test_gauges_show_the_batch_the_queue_and_the_cache(simulator: Start) -> None:
    running = await simulator(time_scale=1.0, max_num_seqs=2, max_model_len=4096)
    engine = running.simulator.core.engine
    long = {"model": "m", "prompt": "hi " * 200, "max_tokens": 3000, "ignore_eos": True}
    async with httpx.AsyncClient(timeout=30) as client:
        asking = [asyncio.create_task(client.post(f"{running.url}/v1/completions", json=long)) for _ in range(5)]
        await until(lambda: len(engine.running) == 2 and len(engine.waiting) == 3)
        samples = await read(running.url)
        assert samples["vllm:num_requests_running", _LABELS] == 2
        assert samples["vllm:num_requests_waiting", _LABELS] == 3
        assert samples["vllm:num_requests_waiting_by_reason", (*_LABELS, ("reason", "capacity"))] == 3
        assert 0 < samples["vllm:kv_cache_usage_perc", _LABELS] < 1
        state = (await client.get(f"{running.url}/sim/state")).json()
        assert (state["running"], state["waiting"], state["in_flight"]) == (2, 3, 5)
        assert (await client.get(f"{running.url}/load")).json() == {"server_load": 5}
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    await until(lambda: engine.idle)
    samples = await read(running.url)
    assert samples["vllm:num_requests_running", _LABELS] == 0
    assert samples["vllm:kv_cache_usage_perc", _LABELS] == 0
    assert samples["vllm:request_success_total", tuple(sorted((*_LABELS, ("finished_reason", "abort"))))] == 5


def test_a_page_that_is_read_again_is_what_prometheus_client_writes_anew() -> None:
    metrics = Simulator(SimulatorSettings(), model='m"x', precision="int4").core.metrics
    kept, rng = Exposition(metrics), random.Random(1)
    for turn in range(20):
        for histogram in metrics.histograms:
            if turn and rng.random() < 0.5:
                histogram.observe(rng.choice([rng.random(), rng.random() * 1000, histogram.bounds[0], 1e9]))
        metrics.engine.counts.prompt_tokens += rng.randint(0, 1)
        metrics.finished["stop"] += rng.randint(0, 1)
        page, whole = lasting(kept.page()), lasting(Exposition(metrics).page())
        assert page == whole
        for histogram in metrics.histograms:
            family = written(family_of(histogram, {"engine": "0", "model_name": metrics.model}, 0.0))
            assert "\n".join(lasting(family)) in "\n".join(page)


def lasting(page: bytes) -> list[str]:
    """The engine's lines, without the times at which things were made."""
    return [line for line in page.decode().splitlines() if "vllm:" in line and "_created{" not in line]

"""Real vLLM on made checkpoints: what is asked of it is what it supports."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from backends.plan import Site, detect, free_ports, parallel_starts, plan_group, prepare
from backends.process.supervisor import Supervisor
from backends.processes import ProcessSpec
from backends.settings import BackendSettings
from router.calibration.collect import collect
from router.calibration.journal import Journal
from router.calibration.prompts import read_prompts
from router.calibration.run import labelled
from router.calibration.sending import Target

pytestmark = pytest.mark.vllm
PRECISIONS = ("fp16", "int8", "int4")
START_S = 600.0


async def test_answers_and_scores_of_three_precisions(
    engine_python: str, prompts_file: Callable[[int], Path], tmp_path: Path
) -> None:
    home = Path(os.environ.get("BITGEAR_TEST_HOME", tmp_path / "home"))
    backends = [
        BackendSettings.model_validate({"precision": p, "kind": "vllm", "vllm": {"max_model_len": 256}})
        for p in PRECISIONS
    ]
    await prepare("tiny", "tiny", backends, home=home, python=engine_python, progress=lambda *_: None)
    machine = detect(engine_python)
    plans = plan_group("tiny", "tiny", backends, Site(home, machine, free_ports(18700), engine_python))
    specs = [s for p in plans for s in p.processes]
    async with httpx.AsyncClient(timeout=300) as client:

        async def probe(spec: ProcessSpec) -> bool:
            body = {"model": "tiny", "prompt": "a", "max_tokens": 1}
            return (await client.post(f"{spec.url}/v1/completions", json=body)).status_code == 200

        supervisor = Supervisor(
            specs, logs=tmp_path / "logs", probe=probe, max_parallel_starts=parallel_starts(machine, plans), grace_s=15
        )
        async with supervisor:
            async with asyncio.timeout(START_S):
                while not all(s.ready for s in supervisor.states().values()):
                    assert all(not s.restarts for s in supervisor.states().values())
                    await asyncio.sleep(0.2)
            full, *others = [
                Target(name, name, (spec.url,), "tiny") for name, spec in zip(PRECISIONS, specs, strict=True)
            ]
            # Full precision also judges itself: its scores of its own answers must be its own.
            itself = Target("fp16-again", "fp8", full.urls, full.model)
            prompts = read_prompts(prompts_file(6))
            with Journal(tmp_path / "j") as journal:
                await collect(
                    *(prompts, full, [itself, *others], journal),
                    max_tokens=6,
                    concurrency=4,
                    timeout_s=300,
                    progress=lambda *_: None,
                )
                rows = list(labelled(prompts, full, [itself, *others], journal, 6, {}, {}))
                records = list(journal.records())
    assert len(rows) == 6
    assert not [r for r in records if "error" in r or "unscored" in r]
    for row in rows:
        assert abs(row.losses["fp8"]["divergence"].target) < 0.01
        assert set(row.losses) == {"fp8", "int8", "int4"}
        assert all("divergence" in losses for losses in row.losses.values())
    assert any(abs(row.losses["int4"]["divergence"].target) > 1e-4 for row in rows)

"""Real vLLM on made checkpoints, supervised as in `bitgear up`: a completion at each precision, nothing left afterwards."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import httpx
import pytest

from backends.plan import Machine, Site, detect, free_ports, parallel_starts, plan_group, prepare
from backends.process import guard
from backends.process.supervisor import Supervisor
from backends.processes import ProcessSpec, VariantPlan
from backends.settings import BackendSettings
from backends.vllm.progress import progress_of

pytestmark = pytest.mark.vllm
PRECISIONS = ("fp16", "int8", "int4")
START_S = 500.0


def _ask(spec: ProcessSpec) -> dict[str, object]:
    return {
        "model": spec.name.partition("/")[0],
        "messages": [{"role": "user", "content": "Explain 天空 in one line."}],
        "max_tokens": 8,
        "temperature": 0,
        "ignore_eos": True,
    }


async def test_three_precisions_answer(engine_python: str, tmp_path: Path) -> None:
    # A home of its own for logs; made models may be shared between runs.
    home = Path(os.environ.get("BITGEAR_TEST_HOME", tmp_path / "home"))
    backends = [
        BackendSettings.model_validate({"precision": p, "kind": "vllm", "vllm": {"max_model_len": 256}})
        for p in PRECISIONS
    ]
    steps: list[str] = []
    await prepare("tiny", "tiny", backends, home=home, python=engine_python, progress=lambda m, _: steps.append(m))
    machine: Machine = detect(engine_python)
    plans: list[VariantPlan] = plan_group(
        "tiny", "tiny", backends, Site(home, machine, free_ports(18500), engine_python)
    )
    specs = [s for p in plans for s in p.processes]
    async with httpx.AsyncClient(timeout=120) as client:

        async def probe(spec: ProcessSpec) -> bool:
            answer = await client.post(f"{spec.url}/v1/chat/completions", json=_ask(spec))
            return answer.status_code == 200

        supervisor = Supervisor(
            specs, logs=tmp_path / "logs", probe=probe, max_parallel_starts=parallel_starts(machine, plans), grace_s=15
        )
        async with supervisor:
            await _until_ready(supervisor)
            for spec in specs:
                answer = (await client.post(f"{spec.url}/v1/chat/completions", json=_ask(spec))).json()
                assert answer["usage"]["completion_tokens"] == 8
                assert answer["choices"][0]["finish_reason"] == "length"
                assert answer["model"] == "tiny"
                names = (await client.get(f"{spec.url}/v1/models")).json()["data"]
                assert [n["id"] for n in names] == ["tiny", spec.name.partition("/")[0]]
            sessions = {s.pid for s in supervisor.states().values()}
    assert all(state.restarts == 0 for state in supervisor.states().values())
    assert not [pid for pid, _, _, session in guard.process_table() if session in sessions]


async def _until_ready(supervisor: Supervisor) -> None:
    async with asyncio.timeout(START_S):
        while not all(s.ready for s in supervisor.states().values()):
            failed = next((s for s in supervisor.states().values() if s.restarts), None)
            if failed is not None:
                pytest.fail(
                    f"{failed.name}: {progress_of(supervisor.tail(failed.name))}\n{supervisor.tail(failed.name)}"
                )
            await asyncio.sleep(0.2)

from __future__ import annotations

import json
import socket
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from backends.plan import (
    PLANNERS,
    Gpu,
    Machine,
    Site,
    detect,
    free_ports,
    parallel_starts,
    plan_group,
    remaining,
)
from backends.processes import PlanError, VariantPlan
from backends.settings import BackendSettings, HostedSettings, SimulatorSettings

MACHINE = Machine((0, 1), 24.0)


def _backends(*items: dict[str, object]) -> list[BackendSettings]:
    return [BackendSettings.model_validate(i) for i in items]


def _plan(home: Path, machine: Machine, *items: dict[str, object]) -> list[VariantPlan]:
    return plan_group("g", "tiny", _backends(*items), Site(home, machine, free_ports(18400), "python"))


def test_every_kind_has_a_planner() -> None:
    kinds = BackendSettings.model_fields["kind"].annotation
    assert set(PLANNERS) == set(kinds.__args__)  # type: ignore[union-attr]


def test_plans_come_in_the_order_of_the_variants(tmp_path: Path) -> None:
    plans = _plan(
        tmp_path,
        MACHINE,
        {"precision": "int4", "kind": "simulator"},
        {"precision": "fp16", "kind": "vllm"},
        {"precision": "int8", "kind": "openai", "urls": ["http://127.0.0.1:1"]},
        {"precision": "fp32", "kind": "litellm", "litellm": {"target": "openai/x"}},
    )
    assert [(p.variant, p.kind) for p in plans] == [("int4", "simulator"), ("fp16", "vllm"), ("fp32", "litellm")]
    urls = [s.url for p in plans for s in p.processes]
    assert len(set(urls)) == 3
    assert not list(tmp_path.iterdir())


def test_a_simulators_command(tmp_path: Path) -> None:
    (made,) = _plan(
        tmp_path, MACHINE, {"precision": "int8", "kind": "simulator", "simulator": {"replicas": 2, "seed": 5}}
    )
    assert [s.name for s in made.processes] == ["g@int8/0", "g@int8/1"]
    argv = made.processes[1].argv
    port = made.processes[1].url.rpartition(":")[2]
    assert argv[:10] == (
        "python",
        "-P",
        "-m",
        "backends.simulator",
        "--port",
        port,
        "--model",
        "g",
        "--precision",
        "int8",
    )
    assert argv[10] == "--settings"
    assert SimulatorSettings.model_validate_json(argv[11]).seed == 5
    assert "simulated" in made.checkpoint


def test_a_sidecars_command(tmp_path: Path) -> None:
    (made,) = _plan(tmp_path, MACHINE, {"precision": "fp16", "kind": "litellm", "litellm": {"target": "openai/x"}})
    argv = made.processes[0].argv
    assert argv[:4] == ("python", "-P", "-m", "backends.hosted")
    assert argv[6:8] == ("--model", "g")
    assert HostedSettings.model_validate(json.loads(argv[9])).target == "openai/x"


def test_a_port_in_use_is_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = list(islice(free_ports(port), 3))
    assert port not in found
    assert len(set(found)) == 3


def test_the_last_port_ends_it() -> None:
    with pytest.raises(PlanError, match="no free port from 65535"):
        list(free_ports(65535))


def test_starts_follow_the_machine(tmp_path: Path) -> None:
    three = [{"precision": p, "kind": "vllm"} for p in ("fp16", "int8", "int4")]
    plans = _plan(tmp_path, MACHINE, *three)
    assert parallel_starts(MACHINE, plans) == 2
    assert parallel_starts(Machine(tuple(range(16)), 64.0), plans) == 16
    gpus = Machine((0, 1), 64.0, (Gpu(0, "H100", 80, 80), Gpu(1, "H100", 80, 80)))
    assert parallel_starts(gpus, plans) == 2
    assert parallel_starts(MACHINE, _plan(tmp_path, MACHINE, {"precision": "fp16", "kind": "simulator"})) > 1


def test_a_second_group_gets_what_is_left(tmp_path: Path) -> None:
    plans = _plan(tmp_path, MACHINE, {"precision": "fp16", "kind": "vllm"})
    assert remaining(MACHINE, plans).memory_gib == pytest.approx(24.0 - plans[0].memory_gib)
    gpus = Machine((0, 1), 64.0, (Gpu(0, "H100", 80, 80), Gpu(1, "H100", 80, 80)))
    left = remaining(gpus, _plan(tmp_path, gpus, {"precision": "fp16", "kind": "vllm"}))
    assert left.memory_gib == 64.0
    assert left.gpus[0].free_gib < 10
    assert left.gpus[1].free_gib == 80


def test_planning_imports_nothing_heavy() -> None:
    code = "import sys, backends.plan; print(sorted({'numpy', 'torch', 'vllm', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_this_machine_can_be_looked_at() -> None:
    assert detect(sys.executable).memory_gib > 0

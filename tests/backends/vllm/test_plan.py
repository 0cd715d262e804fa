from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from backends.processes import PlanError, ProcessSpec, VariantPlan
from backends.settings import BackendSettings
from backends.site import Site
from backends.vllm.machine import Machine
from backends.vllm.plan import plan
from backends.vllm.quantize import quantize_rtn

MACHINE = Machine((0, 1), 24.0)


def _plan(home: Path, base: str | None, **backend: object) -> VariantPlan:
    settings = BackendSettings.model_validate({"kind": "vllm", "precision": "fp16", **backend})
    (made,) = plan("qwen/g", base, [settings], Site(home, MACHINE, iter([9000, 9001]), "/e/python"))
    return made


def _values(spec: ProcessSpec, option: str) -> list[str]:
    rest = spec.argv[spec.argv.index(option) + 1 :]
    return list(rest[: next((i for i, a in enumerate(rest) if a.startswith("--")), len(rest))])


def test_the_whole_command(tmp_path: Path) -> None:
    made = _plan(tmp_path, "smollm2-135m", precision="int4")
    (spec,) = made.processes
    assert spec.argv == (
        *("/e/python", "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", "9000"),
        *("--model", str(tmp_path / "models/smollm2-135m/int4"), "--served-model-name", "qwen/g", "qwen/g@int4"),
        *("--dtype", "bfloat16", "--max-model-len", "8192", "--max-num-seqs", "16"),
        *("--enforce-eager", "--disable-uvicorn-access-log"),
    )
    assert spec.url == "http://127.0.0.1:9000"
    assert spec.name == "qwen/g@int4/0"
    assert spec.log == tmp_path / "logs" / "qwen-g@int4-0.log"
    assert spec.start_timeout_s == 900
    assert made.served_model == "qwen/g"
    assert made.kind == "vllm"
    assert "GiB" in made.arithmetic
    assert not list(tmp_path.iterdir())


def test_settings_reach_the_command(tmp_path: Path) -> None:
    vllm = {
        "max_num_seqs": 4,
        "enforce_eager": False,
        "extra_args": ("--seed", "7"),
        "env": {"OMP_NUM_THREADS": "3", "X": "y"},
        "start_timeout_s": 60,
        "replicas": 2,
        "max_model_len": 256,
    }
    made = _plan(tmp_path, "tiny", name="full", model="served", vllm=vllm)
    assert [s.name for s in made.processes] == ["qwen/g@full/0", "qwen/g@full/1"]
    spec = made.processes[1]
    assert _values(spec, "--served-model-name") == ["served", "qwen/g", "qwen/g@full"]
    assert made.served_model == "served"
    assert _values(spec, "--max-num-seqs") == ["4"]
    assert _values(spec, "--max-model-len") == ["256"]
    assert spec.argv[-2:] == ("--seed", "7")
    assert "--enforce-eager" not in spec.argv
    assert spec.env["OMP_NUM_THREADS"] == "3"
    assert spec.env["X"] == "y"
    assert spec.start_timeout_s == 60
    assert made.arithmetic.startswith("2 x (")


def test_a_hubs_model_may_be_fetched(tmp_path: Path) -> None:
    made = _plan(tmp_path, "Qwen/Qwen3-0.6B")
    assert "HF_HUB_OFFLINE" not in made.processes[0].env
    assert "unknown before the download" in made.arithmetic
    assert "--max-model-len" not in made.processes[0].argv


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="/no/such/model does not exist"):
        _plan(tmp_path, "/no/such/model")
    with pytest.raises(PlanError, match="/no/such/int8 does not exist"):
        _plan(tmp_path, "tiny", precision="int8", vllm={"checkpoint": "/no/such/int8"})


def test_quantizing_what_is_quantized_is_refused(source: Path, tmp_path: Path) -> None:
    quantized = tmp_path / "q"
    quantized.mkdir()
    quantize_rtn(source, quantized, "int8", lambda *_: None)
    with pytest.raises(PlanError, match=r"quantized already \(compressed-tensors\)"):
        _plan(tmp_path / "home", str(quantized), precision="int4")


def test_a_made_checkpoint_counts_as_it_is(checkpoint: ModuleType, tmp_path: Path) -> None:
    before = _plan(tmp_path, "tiny", precision="int8").memory_gib
    folder = tmp_path / "models" / "tiny" / "int8"
    folder.mkdir(parents=True)
    checkpoint.write(tmp_path / "small")
    quantize_rtn(tmp_path / "small", folder, "int8", lambda *_: None)
    assert _plan(tmp_path, "tiny", precision="int8").memory_gib < before


def test_no_model_at_all(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no base_model"):
        _plan(tmp_path, None)

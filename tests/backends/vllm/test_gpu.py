from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.processes import PlanError, VariantPlan
from backends.settings import BackendSettings
from backends.site import Site
from backends.vllm.machine import Gpu, Machine
from backends.vllm.plan import plan

CONFIG = {
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}


def _machine(count: int, memory: float = 80.0, free: float | None = None) -> Machine:
    return Machine((0, 1), 64.0, tuple(Gpu(i, "H100", memory, memory if free is None else free) for i in range(count)))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("qwen3-8b")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return str(folder)


def _plan(model: str, machine: Machine, *variants: dict[str, object]) -> list[VariantPlan]:
    backends = [
        BackendSettings.model_validate({"kind": "vllm", "precision": v.pop("precision"), "vllm": v})
        for v in map(dict, variants)
    ]
    return plan("g", model, backends, Site(Path("/h"), machine, iter(range(9000, 9999)), "python"))


def _option(plan: VariantPlan, name: str, number: int = 0) -> str:
    argv = plan.processes[number].argv
    return argv[argv.index(name) + 1]


def _devices(plan: VariantPlan) -> list[str]:
    return [s.env["CUDA_VISIBLE_DEVICES"] for s in plan.processes]


THREE = ({"precision": "fp16"}, {"precision": "int8"}, {"precision": "int4"})


def test_three_share_one_gpu(model: str) -> None:
    plans = _plan(model, _machine(1), *THREE)
    assert [_devices(p) for p in plans] == [["0"]] * 3
    shares = [float(_option(p, "--gpu-memory-utilization")) for p in plans]
    assert sum(shares) == pytest.approx(0.92, abs=0.005)
    # Each has the same KV cache: the shares differ by the weights.
    assert shares[0] > shares[1] > shares[2]
    assert _option(plans[0], "--dtype") == "float16"
    assert "--enforce-eager" not in plans[0].processes[0].argv
    assert "VLLM_CPU_KVCACHE_SPACE" not in plans[0].processes[0].env


def test_one_gpu_each_where_there_are_enough(model: str) -> None:
    assert [_devices(p) for p in _plan(model, _machine(3), *THREE)] == [["0"], ["1"], ["2"]]


def test_own_devices_and_tensor_parallelism(model: str) -> None:
    plans = _plan(model, _machine(4), {"precision": "fp16", "devices": (0, 1)}, {"precision": "int4", "devices": (3,)})
    assert [_devices(p) for p in plans] == [["0,1"], ["3"]]
    assert _option(plans[0], "--tensor-parallel-size") == "2"
    assert "--tensor-parallel-size" not in plans[1].processes[0].argv


def test_replicas_divide_their_devices(model: str) -> None:
    (made,) = _plan(model, _machine(4), {"precision": "fp16", "devices": (0, 1, 2, 3), "replicas": 2})
    assert _devices(made) == ["0,1", "2,3"]


def test_a_model_too_large_for_one_gpu_takes_more(model: str) -> None:
    (made,) = _plan(model, _machine(4, 16.0), {"precision": "fp16"})
    assert _option(made, "--tensor-parallel-size") == "2"


def test_a_model_too_large_for_all_is_refused(model: str) -> None:
    with pytest.raises(PlanError, match=r"GiB of weights .* do not fit 1 GPU"):
        _plan(model, _machine(1, 12.0), {"precision": "fp16"})


def test_too_many_on_one_gpu_are_refused_with_the_sum(model: str) -> None:
    with pytest.raises(PlanError) as caught:
        _plan(model, _machine(1, 24.0), *THREE)
    assert "GPU 0 (H100) has 22.1 usable of 24.0 GiB" in str(caught.value)
    assert str(caught.value).count("least KV cache") == 3


def test_memory_that_others_hold_does_not_count(model: str) -> None:
    with pytest.raises(PlanError, match=r"has 30\.0 usable"):
        _plan(model, _machine(1, 80.0, free=30.0), *THREE)


def test_a_given_share_is_taken_as_it_is(model: str) -> None:
    plans = _plan(model, _machine(1), {"precision": "fp16", "memory_share": 0.5}, {"precision": "int4"})
    shares = [float(_option(p, "--gpu-memory-utilization")) for p in plans]
    assert shares[0] == 0.5
    assert shares[1] == pytest.approx(0.42, abs=0.002)


def test_a_given_share_that_is_too_small_is_refused(model: str) -> None:
    with pytest.raises(PlanError, match=r"of its share 0\.10 x 80\.0 = 8\.0 GiB"):
        _plan(model, _machine(1), {"precision": "fp16", "memory_share": 0.1})


def test_a_device_that_is_not_there(model: str) -> None:
    with pytest.raises(PlanError, match=r"vllm\.devices names GPU \[5\]"):
        _plan(model, _machine(2), {"precision": "fp16", "devices": (5,)})


def test_context_is_cut_to_what_fits(model: str) -> None:
    (made,) = _plan(model, _machine(1, 24.0), {"precision": "fp16"})
    length = int(_option(made, "--max-model-len"))
    assert 0 < length < 40960
    assert length % 128 == 0


def test_asked_context_must_fit(model: str) -> None:
    with pytest.raises(PlanError, match="least KV cache"):
        _plan(model, _machine(1, 24.0), {"precision": "fp16", "max_model_len": 40960})


def test_fp8_is_quantized_by_the_engine(model: str) -> None:
    (made,) = _plan(model, _machine(1), {"precision": "fp8"})
    assert _option(made, "--quantization") == "fp8"
    assert _option(made, "--model") == model


@given(
    count=st.integers(1, 8),
    memory=st.floats(8, 192),
    free=st.floats(0.1, 1),
    chosen=st.lists(st.sampled_from(["fp16", "fp8", "int8", "int4"]), min_size=1, max_size=4, unique=True),
    replicas=st.integers(1, 4),
)
def test_no_gpu_is_promised_twice(
    model: str, count: int, memory: float, free: float, chosen: list[str], replicas: int
) -> None:
    machine = _machine(count, memory, memory * free)
    try:
        plans = _plan(model, machine, *({"precision": p, "replicas": replicas} for p in chosen))
    except PlanError:
        return
    used = dict.fromkeys(range(count), 0.0)
    for made in plans:
        for number, devices in enumerate(_devices(made)):
            for index in devices.split(","):
                used[int(index)] += float(_option(made, "--gpu-memory-utilization", number)) * memory
    assert all(gib <= memory * min(0.92, free) + 0.01 for gib in used.values())

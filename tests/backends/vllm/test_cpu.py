from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.processes import PlanError, VariantPlan
from backends.settings import BackendSettings
from backends.site import Site
from backends.vllm.machine import Machine
from backends.vllm.plan import plan

THREE = ("fp16", "int8", "int4")


def _plan(
    precisions: tuple[str, ...] = THREE, *, machine: Machine | None = None, model: str = "smollm2-135m", **vllm: object
) -> list[VariantPlan]:
    backends = [BackendSettings.model_validate({"precision": p, "kind": "vllm", "vllm": vllm}) for p in precisions]
    machine = machine or Machine((0, 1), 24.0)
    return plan("g", model, backends, Site(Path("/h"), machine, iter(range(9000, 9999)), "python"))


def test_three_variants_on_two_cores() -> None:
    plans = _plan()
    assert [p.variant for p in plans] == list(THREE)
    for made in plans:
        (spec,) = made.processes
        assert spec.env["VLLM_CPU_KVCACHE_SPACE"] == "1"
        assert spec.env["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
        assert spec.env["OMP_NUM_THREADS"] == "1"
        assert spec.env["HF_HUB_OFFLINE"] == "1"
        assert spec.env["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
        assert "--enforce-eager" in spec.argv
        assert spec.argv[spec.argv.index("--dtype") + 1] == "bfloat16"
        assert spec.argv[spec.argv.index("--max-model-len") + 1] == "8192"


def test_cores_are_divided_or_bound() -> None:
    assert _plan(machine=Machine(tuple(range(12)), 24.0))[0].processes[0].env["OMP_NUM_THREADS"] == "4"
    bound = _plan(("fp16",), cores=(0, 1))[0].processes[0].env
    assert bound["VLLM_CPU_OMP_THREADS_BIND"] == "0,1"
    assert bound["OMP_NUM_THREADS"] == "2"
    # vLLM binds in a worker process of its own, so it must be allowed one.
    assert "VLLM_ENABLE_V1_MULTIPROCESSING" not in bound


def test_foreign_cores_are_refused() -> None:
    with pytest.raises(PlanError, match=r"g@fp16: vllm\.cores names \[7\]"):
        _plan(("fp16",), cores=(0, 7))


def test_too_little_memory_is_refused_with_the_sum() -> None:
    with pytest.raises(PlanError) as caught:
        _plan(machine=Machine((0, 1), 6.0))
    text = str(caught.value)
    rows = [float(m) for m in re.findall(r"= ([0-9.]+) GiB$", text, re.MULTILINE)]
    assert len(rows) == 3
    total = re.search(r"needs ([0-9.]+) GiB", text)
    assert total is not None
    assert sum(rows) == pytest.approx(float(total[1]), abs=0.06)
    assert "6.0 GiB are available" in text


@given(st.floats(0, 200), st.integers(1, 8), st.integers(1, 4))
def test_a_plan_fits_or_is_refused(memory: float, kv: int, replicas: int) -> None:
    try:
        plans = _plan(machine=Machine((0, 1), memory), kv_cache_gib=kv, replicas=replicas)
    except PlanError:
        return
    assert sum(p.memory_gib for p in plans) <= memory
    ports = [s.url for p in plans for s in p.processes]
    assert len(set(ports)) == 3 * replicas


def test_context_must_fit_the_cache() -> None:
    # 23040 bytes a token: 46592 of them in 1 GiB.
    assert _plan(("fp16",), max_model_len=46592)[0].processes
    with pytest.raises(PlanError, match=r"46593 x 23040 bytes = 1\.00 GiB"):
        _plan(("fp16",), max_model_len=46593)


@pytest.mark.parametrize("precision", ["fp8", "nvfp4", "mxfp4"])
def test_float_formats_have_no_cpu_kernels(precision: str) -> None:
    with pytest.raises(PlanError, match=rf"g@{precision}"):
        _plan((precision,), checkpoint="owner/model")
    with pytest.raises(PlanError, match="no kernels"):
        _plan(("fp8",))


def test_fp32_is_fp32() -> None:
    argv = _plan(("fp32",))[0].processes[0].argv
    assert argv[argv.index("--dtype") + 1] == "float32"


def test_without_bfloat16_instructions_full_precision_is_computed_in_float32() -> None:
    narrow = _plan((*THREE, "bf16"), machine=Machine((0, 1), 24.0))
    wide = _plan((*THREE, "bf16"), machine=Machine((0, 1), 24.0, bfloat16=False))
    dtypes = [p.processes[0].argv[p.processes[0].argv.index("--dtype") + 1] for p in wide]
    assert dtypes == ["float32", "bfloat16", "bfloat16", "float32"]
    assert "weights fp16, computed in float32" in wide[0].checkpoint
    assert "weights bf16, computed in float32" in wide[3].checkpoint
    assert "float32" not in wide[1].checkpoint + "".join(p.checkpoint for p in narrow)
    weights = [float(re.match(r"([0-9.]+) weights", p.arithmetic)[1]) for p in (narrow[0], wide[0])]  # type: ignore[index]
    assert weights[1] == pytest.approx(2 * weights[0], abs=0.02)
    assert [p.arithmetic for p in wide[1:3]] == [p.arithmetic for p in narrow[1:3]]


def test_float32_halves_the_context_that_fits() -> None:
    wide = Machine((0, 1), 24.0, bfloat16=False)
    assert _plan(("fp16",), machine=wide, max_model_len=23296)[0].processes
    with pytest.raises(PlanError, match=r"46080 bytes"):
        _plan(("fp16",), machine=wide, max_model_len=23297)
    assert _plan(("int8",), machine=wide, max_model_len=46592)[0].processes

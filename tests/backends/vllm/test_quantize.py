from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from backends.vllm import rtn, tensors
from backends.vllm.headers import INDEX, TensorFileError, all_entries, files
from backends.vllm.quantize import QuantizeError, quantize_rtn

Report = Callable[[str, float | None], None]


def _quantized(source: Path, precision: str, progress: Report) -> tuple[Path, dict[str, object]]:
    target = source.with_name(f"{source.name}-{precision}")
    target.mkdir()
    return target, quantize_rtn(source, target, precision, progress)


def test_int8_restores_within_half_a_step(checkpoint: ModuleType, source: Path, progress: Report) -> None:
    target, details = _quantized(source, "int8", progress)
    found = all_entries(target)
    original = checkpoint.weights()
    name = "model.layers.1.mlp.down_proj.weight"
    assert found[name].dtype == "I8"
    values = np.frombuffer(found[name].raw(), np.int8).reshape(found[name].shape)
    scale = tensors.floats(found[f"{name}_scale"])
    assert scale.shape == (original[name].shape[0], 1)
    assert rtn.relative_error(original[name], values * scale) < 0.02
    assert details["matrices"] == 14
    config = json.loads((target / "config.json").read_text())["quantization_config"]
    assert config["format"] == "int-quantized"
    assert config["config_groups"]["group_0"]["input_activations"]["dynamic"] is True


def test_int4_restores_and_says_its_shape(checkpoint: ModuleType, source: Path, progress: Report) -> None:
    target, details = _quantized(source, "int4", progress)
    found = all_entries(target)
    original = checkpoint.weights()
    stem = "model.layers.0.self_attn.k_proj.weight"
    assert stem not in found
    packed = np.frombuffer(found[f"{stem}_packed"].raw(), "<i4").reshape(found[f"{stem}_packed"].shape)
    scale = tensors.floats(found[f"{stem}_scale"])
    shape = np.frombuffer(found[f"{stem}_shape"].raw(), "<i8")
    assert shape.tolist() == list(original[stem].shape)
    assert details["group_size"] == 128
    assert rtn.relative_error(original[stem], rtn.unpack_int4(packed) * scale.repeat(128, axis=1)) < 0.2
    config = json.loads((target / "config.json").read_text())["quantization_config"]
    assert config["config_groups"]["group_0"]["weights"]["group_size"] == 128


def test_a_width_that_128_does_not_divide_takes_a_smaller_group(
    checkpoint: ModuleType, tmp_path: Path, progress: Report
) -> None:
    _, details = _quantized(checkpoint.write(tmp_path / "odd", hidden=192), "int4", progress)
    assert details["group_size"] == 64


@pytest.mark.parametrize("precision", ["int8", "int4"])
@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
def test_shards_give_the_same_as_one_file(
    checkpoint: ModuleType, tmp_path: Path, progress: Report, precision: str, dtype: str
) -> None:
    one, _ = _quantized(checkpoint.write(tmp_path / "one", dtype=dtype), precision, progress)
    three, _ = _quantized(checkpoint.write(tmp_path / "three", dtype=dtype, shards=3), precision, progress)
    whole, parts = all_entries(one), all_entries(three)
    assert whole.keys() == parts.keys()
    assert all(whole[n].raw() == parts[n].raw() for n in whole)
    assert len(files(three)) == 3
    index = json.loads((three / INDEX).read_text())
    assert index["metadata"]["total_size"] == sum(e.size for e in parts.values())


def test_everything_else_is_kept(source: Path, progress: Report) -> None:
    target, _ = _quantized(source, "int4", progress)
    before, after = all_entries(source), all_entries(target)
    for name in ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"):
        assert after[name].raw() == before[name].raw()
    assert (target / "tokenizer.json").read_text() == "{}"


def test_what_stays_unquantized_is_named(checkpoint: ModuleType, tmp_path: Path, progress: Report) -> None:
    folder = checkpoint.write(tmp_path / "moe")
    extra = {"model.layers.0.mlp.gate.weight": tensors.tensor(np.ones((4, 128), np.float32), "BF16")}
    kept = {n: tensors.copy(e) for n, e in all_entries(folder).items()}
    tensors.write(folder / "model.safetensors", {**kept, **extra})
    target, _ = _quantized(folder, "int8", progress)
    ignore = json.loads((target / "config.json").read_text())["quantization_config"]["ignore"]
    assert ignore == ["lm_head", "model.layers.0.mlp.gate"]


def test_progress_ends_at_one(source: Path, progress: Report, steps: list[tuple[str, float | None]]) -> None:
    _quantized(source, "int8", progress)
    fractions = [f for _, f in steps if f is not None]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0


def test_a_quantized_source_is_refused(source: Path, progress: Report) -> None:
    target, _ = _quantized(source, "int8", progress)
    with pytest.raises(QuantizeError, match="quantized already"):
        _quantized(target, "int4", progress)


def test_an_unknown_architecture_is_refused(source: Path, progress: Report) -> None:
    tensors.write(source / "model.safetensors", {"encoder.w": tensors.tensor(np.ones((2, 2), np.float32), "F16")})
    with pytest.raises(QuantizeError, match="not known"):
        _quantized(source, "int8", progress)


def test_an_unknown_precision_is_refused(source: Path, progress: Report) -> None:
    with pytest.raises(QuantizeError, match="nvfp4"):
        _quantized(source, "nvfp4", progress)


def test_a_broken_checkpoint_is_refused(source: Path, progress: Report) -> None:
    (source / "model.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(TensorFileError):
        _quantized(source, "int8", progress)

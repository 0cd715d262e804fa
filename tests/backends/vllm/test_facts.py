from __future__ import annotations

import json
import math
from pathlib import Path
from types import ModuleType

import pytest

from backends.vllm.facts import BUILT_IN_FACTS, from_config, is_quantized_weight, read_facts

QWEN3_8B = {
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
}


def test_a_known_model_comes_out_right() -> None:
    facts = from_config(QWEN3_8B)
    assert facts is not None
    # Qwen3-8B has 8.19 billion parameters and 144 KiB of keys and values a token.
    assert facts.projections + facts.others == pytest.approx(8.19e9, rel=0.005)
    assert facts.kv_bytes_per_token() == 144 * 1024
    assert facts.weight_bytes("fp16") / 1e9 == pytest.approx(16.4, rel=0.01)
    assert facts.weight_bytes("int8") < facts.weight_bytes("fp16") / 1.6
    assert facts.weight_bytes("int4") < facts.weight_bytes("int8")
    assert facts.weight_bytes("fp32") == 2 * facts.weight_bytes("bf16")


def test_experts_count() -> None:
    config = {
        **QWEN3_8B,
        "num_experts": 128,
        "moe_intermediate_size": 768,
        "hidden_size": 2048,
        "num_hidden_layers": 48,
    }
    facts = from_config({**config, "num_key_value_heads": 4})
    assert facts is not None
    # Qwen3-30B-A3B has 30.5 billion.
    assert facts.projections + facts.others == pytest.approx(30.5e9, rel=0.02)


def test_a_nested_text_configuration_is_found() -> None:
    assert from_config({"model_type": "vision", "text_config": QWEN3_8B}) == from_config(QWEN3_8B)


def test_what_is_not_known_is_none(tmp_path: Path) -> None:
    assert from_config({"model_type": "diffusion"}) is None
    # Layer by layer, as a few models say it, or without sense.
    for odd in (
        {"num_key_value_heads": [4, 4, 8]},
        {"head_dim": "wide"},
        {"num_attention_heads": 0, "head_dim": None},
        {"max_position_embeddings": math.inf},
        {"quantization_config": [1]},
    ):
        assert from_config({**QWEN3_8B, **odd}) is None
    assert from_config({**QWEN3_8B, "text_config": None}) == from_config(QWEN3_8B)
    assert read_facts(str(tmp_path)) is None
    assert read_facts("owner/model") is None
    (tmp_path / "config.json").write_text("{")
    assert read_facts(str(tmp_path)) is None


def test_a_folder_is_counted_not_estimated(checkpoint: ModuleType, tmp_path: Path) -> None:
    facts = read_facts(str(checkpoint.write(tmp_path / "c", shards=2)))
    assert facts is not None
    assert facts.projections == checkpoint.PROJECTIONS
    assert facts.stored_bytes == 2 * (facts.projections + facts.others)
    assert facts.quantized is None


def test_a_quantized_folder_keeps_its_stored_size(source: Path) -> None:
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "awq"}}))
    facts = read_facts(str(source))
    assert facts is not None
    assert facts.quantized == "awq"
    assert facts.weight_bytes("int4") == facts.stored_bytes


def test_without_weights_the_configuration_counts(source: Path) -> None:
    (source / "model.safetensors").unlink()
    facts = read_facts(str(source))
    assert facts is not None
    assert facts.stored_bytes is None
    assert facts.projections > 0


@pytest.mark.parametrize(
    ("name", "shape", "chosen"),
    [
        ("model.layers.0.self_attn.q_proj.weight", (4, 4), True),
        ("model.language_model.layers.11.mlp.gate_up_proj.weight", (4, 4), True),
        ("model.layers.0.mlp.experts.3.down_proj.weight", (4, 4), True),
        ("model.layers.0.mlp.gate.weight", (4, 4), False),
        ("model.layers.0.self_attn.q_proj.bias", (4,), False),
        ("model.layers.0.input_layernorm.weight", (4,), False),
        ("lm_head.weight", (4, 4), False),
        ("model.embed_tokens.weight", (4, 4), False),
        ("model.visual.layers.0.q_proj.weight", (4, 4), False),
        ("model.layers.0.conv_proj.weight", (4, 4, 1), False),
    ],
)
def test_only_projections_of_decoder_layers_are_quantized(name: str, shape: tuple[int, ...], chosen: bool) -> None:
    assert is_quantized_weight(name, shape) is chosen


def test_built_in_models_are_of_known_size() -> None:
    smollm = BUILT_IN_FACTS["smollm2-135m"]
    assert smollm.projections + smollm.others == 134_515_008
    assert smollm.kv_bytes_per_token() == 23040

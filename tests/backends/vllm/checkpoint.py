"""A small checkpoint of real shape and no sense, written without torch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from backends.vllm import tensors

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 128, 256, 2, 2, 1, 64, 96
PROJECTIONS = LAYERS * (2 * HIDDEN * HEADS * HEAD_DIM + 2 * HIDDEN * KV_HEADS * HEAD_DIM + 3 * HIDDEN * INNER)


def weights(seed: int = 0, hidden: int = HIDDEN) -> dict[str, np.ndarray]:
    """Names and values as transformers writes a Llama."""
    random = np.random.default_rng(seed)
    found: dict[str, np.ndarray] = {"model.embed_tokens.weight": random.normal(size=(VOCABULARY, hidden))}
    for layer in range(LAYERS):
        stem = f"model.layers.{layer}"
        shapes = {
            "self_attn.q_proj": (HEADS * HEAD_DIM, hidden),
            "self_attn.k_proj": (KV_HEADS * HEAD_DIM, hidden),
            "self_attn.v_proj": (KV_HEADS * HEAD_DIM, hidden),
            "self_attn.o_proj": (hidden, HEADS * HEAD_DIM),
            "mlp.gate_proj": (INNER, hidden),
            "mlp.up_proj": (INNER, hidden),
            "mlp.down_proj": (hidden, INNER),
        }
        for name, shape in shapes.items():
            found[f"{stem}.{name}.weight"] = random.normal(size=shape)
        found[f"{stem}.input_layernorm.weight"] = np.ones(hidden)
    found["model.norm.weight"] = np.ones(hidden)
    found["lm_head.weight"] = random.normal(size=(VOCABULARY, hidden))
    return {n: v.astype(np.float32) for n, v in found.items()}


def write(folder: Path, *, dtype: str = "BF16", shards: int = 1, seed: int = 0, hidden: int = HIDDEN) -> Path:
    """A checkpoint folder with `shards` weight files."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 512,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    values = {n: tensors.tensor(v, dtype) for n, v in weights(seed, hidden).items()}
    names = list(values)
    if shards == 1:
        tensors.write(folder / "model.safetensors", values)
        return folder
    weight_map: dict[str, str] = {}
    total = 0
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = {n: values[n] for n in names[number::shards]}
        total += tensors.write(folder / file, part)
        weight_map.update(dict.fromkeys(part, file))
    tensors.write_index(folder, weight_map, total)
    return folder

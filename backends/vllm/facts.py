"""What a checkpoint's configuration and headers say about its size: the input of the memory arithmetic."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backends.vllm.headers import TensorFileError, all_entries

QUANTIZED = re.compile(r"(?:^|\.)layers\.\d+\.(?:[A-Za-z0-9_]+\.)*[a-z_]*proj\.weight$")
"""Weights that quantization touches: the projections inside decoder layers. Embeddings, norms, routers and the head stay."""
_NOT_TEXT = ("visual", "vision", "audio", "image")


def is_quantized_weight(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor is one of the matrices that quantization replaces."""
    return len(shape) == 2 and QUANTIZED.search(name) is not None and not any(word in name for word in _NOT_TEXT)


@dataclass(frozen=True)
class ModelFacts:
    """Sizes of one model."""

    projections: int
    """Parameters in the matrices that quantization replaces."""
    others: int
    """Parameters in everything else."""
    layers: int
    kv_heads: int
    head_dim: int
    max_model_len: int
    quantized: str | None = None
    """The checkpoint's own quantization, if it has one."""
    stored_bytes: int | None = None
    """Bytes of its tensors as stored; None where it is not made yet."""
    attention_heads: int = 1

    def weight_bytes(self, precision: str, group: int = 64) -> int:
        """Bytes of weights in memory at `precision`; everything but the projections has 16 bits.

        A checkpoint that is quantized already keeps its stored size.
        """
        if self.quantized and self.stored_bytes is not None:
            return self.stored_bytes
        if precision == "fp32":
            return 4 * (self.projections + self.others)
        per_weight = {"fp8": 1.0, "int8": 1.0, "int4": 0.5 + 4 / group, "mxfp4": 0.5 + 1 / 32, "nvfp4": 0.5 + 1 / 16}
        return math.ceil(self.projections * per_weight.get(precision, 2.0)) + 2 * self.others

    def kv_bytes_per_token(self, value_bytes: int = 2) -> int:
        """Bytes of KV cache one token takes: keys and values, every layer, `value_bytes` each number."""
        return 2 * self.layers * self.kv_heads * self.head_dim * value_bytes


BUILT_IN_FACTS = {
    "smollm2-135m": ModelFacts(
        projections=106_168_320,
        others=28_346_688,
        layers=30,
        kv_heads=3,
        head_dim=64,
        max_model_len=8192,
        attention_heads=9,
    ),
    "tiny": ModelFacts(
        projections=3_014_656,
        others=2_100_480,
        layers=4,
        kv_heads=2,
        head_dim=64,
        max_model_len=1024,
        attention_heads=4,
    ),
}
"""Known before they are made, so that a dry run can do its arithmetic."""


def read_facts(model: str) -> ModelFacts | None:
    """Facts of a checkpoint folder; None when it isn't there (a hub's name, or not made yet) or has no readable configuration."""
    folder = Path(model).expanduser()
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError, RecursionError):
        return None
    facts = from_config(config)
    if facts is None:
        return None
    try:
        tensors = all_entries(folder)
    except (TensorFileError, OSError):
        return facts
    projections = sum(e.count for n, e in tensors.items() if is_quantized_weight(n, e.shape))
    total = sum(e.count for e in tensors.values())
    stored = sum(e.size for e in tensors.values())
    if facts.quantized:
        return replace(facts, stored_bytes=stored)
    return replace(facts, projections=projections, others=total - projections, stored_bytes=stored)


def from_config(config: dict[str, Any]) -> ModelFacts | None:
    """Facts from a transformers `config.json` alone, parameters estimated from its dimensions; None where they are missing.

    None too where they are none that can be counted with: some models list a dimension layer by layer.
    """
    try:
        return _estimated({**config, **(config.get("text_config") or {})})
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError):
        return None


def _estimated(text: dict[str, Any]) -> ModelFacts:
    hidden, layers = int(text["hidden_size"]), int(text["num_hidden_layers"])
    heads = int(text["num_attention_heads"])
    inner, vocab = int(text.get("intermediate_size") or 4 * hidden), int(text["vocab_size"])
    kv_heads = int(text.get("num_key_value_heads") or heads)
    head_dim = int(text.get("head_dim") or hidden // heads)
    experts = int(text.get("num_experts") or text.get("num_local_experts") or text.get("n_routed_experts") or 0)
    mlp = 3 * hidden * inner
    if experts:
        mlp = 3 * hidden * int(text.get("moe_intermediate_size") or inner) * experts
    attention = hidden * head_dim * (2 * heads + 2 * kv_heads)
    embeddings = vocab * hidden * (1 if text.get("tie_word_embeddings") else 2)
    quantization = text.get("quantization_config") or {}
    return ModelFacts(
        projections=layers * (attention + mlp),
        others=embeddings + (2 * layers + 1) * hidden,
        layers=layers,
        kv_heads=kv_heads,
        head_dim=head_dim,
        max_model_len=int(text.get("max_position_embeddings") or 4096),
        quantized=str(quantization.get("quant_method")) if quantization else None,
        attention_heads=heads,
    )

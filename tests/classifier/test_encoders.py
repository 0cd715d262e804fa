from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from classifier.conversation import view
from classifier.encoders import EncoderError, Known, fingerprint, open_encoder
from classifier.features import extract
from classifier.fit import Examples, fit_embedding
from classifier.models import ModelError, build

WORDS = ("[UNK]", "prove", "integral", "sea", "poem", "the", "a")
SIZE = 8


def tokenizer(folder: Path) -> None:
    made = Tokenizer(WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    made.save(str(folder / "tokenizer.json"))


def static(folder: Path) -> Path:
    """A folder as model2vec saves one: the hard words point one way, the easy ones another."""
    folder.mkdir()
    tokenizer(folder)
    table = np.random.default_rng(0).normal(0, 0.01, (len(WORDS), SIZE)).astype(np.float32)
    table[1:3, 0] += 1.0
    table[3:5, 1] += 1.0
    save_file({"embeddings": table}, folder / "model.safetensors")
    return folder


def bert(folder: Path, layers: int = 2) -> Path:
    """A folder as sentence-transformers saves one, its weights drawn at random."""
    folder.mkdir()
    tokenizer(folder)
    generator = np.random.default_rng(1)

    def drawn(*shape: int) -> Any:
        return generator.normal(0, 0.5, shape).astype(np.float32)

    tensors = {
        "embeddings.word_embeddings.weight": drawn(len(WORDS), SIZE),
        "embeddings.position_embeddings.weight": drawn(300, SIZE),
        "embeddings.token_type_embeddings.weight": drawn(2, SIZE),
    }
    shapes = {
        "attention.self.query": (SIZE, SIZE),
        "attention.self.key": (SIZE, SIZE),
        "attention.self.value": (SIZE, SIZE),
        "attention.output.dense": (SIZE, SIZE),
        "intermediate.dense": (4 * SIZE, SIZE),
        "output.dense": (SIZE, 4 * SIZE),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(layers):
        for name, shape in shapes.items():
            tensors[f"encoder.layer.{layer}.{name}.weight"] = drawn(*shape)
            tensors[f"encoder.layer.{layer}.{name}.bias"] = drawn(shape[0])
        norms += [f"encoder.layer.{layer}.{part}.LayerNorm" for part in ("attention.output", "output")]
    for name in norms:
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = 1 + drawn(SIZE) / 5, drawn(SIZE) / 5
    save_file(tensors, folder / "model.safetensors")
    config = {"model_type": "bert", "num_hidden_layers": layers, "num_attention_heads": 2}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_static_encoder_is_the_mean_of_its_rows(tmp_path: Path) -> None:
    encoder = open_encoder(static(tmp_path / "s"))
    assert encoder.size == SIZE
    hard, easy = encoder.encode("prove the integral"), encoder.encode("a poem")
    assert float(hard @ hard) == pytest.approx(1, abs=1e-5)
    assert hard[0] > 0.9
    assert easy[1] > 0.9
    assert not encoder.encode("").any()
    assert np.array_equal(encoder.encode("prove \ud800"), encoder.encode("prove ?"))


def test_a_bert_encoder_reads_order_and_context(tmp_path: Path) -> None:
    encoder = open_encoder(bert(tmp_path / "b"))
    one, other = encoder.encode("prove the sea"), encoder.encode("sea the prove")
    assert float(one @ one) == pytest.approx(1, abs=1e-5)
    assert np.abs(one - other).max() > 1e-3
    assert np.array_equal(one, encoder.encode("prove the sea"))
    assert np.isfinite(encoder.encode("sea " * 5000)).all()


def test_one_layer_is_what_its_formula_says(tmp_path: Path) -> None:
    """Against the formula written out for one token, whose attention is itself."""
    from safetensors.numpy import load_file

    folder = bert(tmp_path / "b", layers=1)
    t = load_file(folder / "model.safetensors")
    x = t["embeddings.word_embeddings.weight"][1] + t["embeddings.position_embeddings.weight"][0]
    x = x + t["embeddings.token_type_embeddings.weight"][0]

    def norm(x: Any, name: str) -> Any:
        return (x - x.mean()) / np.sqrt(x.var() + 1e-12) * t[f"{name}.weight"] + t[f"{name}.bias"]

    def dense(x: Any, name: str) -> Any:
        return t[f"encoder.layer.0.{name}.weight"] @ x + t[f"encoder.layer.0.{name}.bias"]

    from math import erf, sqrt

    x = norm(x, "embeddings.LayerNorm")
    x = norm(
        x + dense(dense(x, "attention.self.value"), "attention.output.dense"),
        "encoder.layer.0.attention.output.LayerNorm",
    )
    up = dense(x, "intermediate.dense")
    up = np.array([value * 0.5 * (1 + erf(value / sqrt(2))) for value in up])
    x = norm(x + dense(up, "output.dense"), "encoder.layer.0.output.LayerNorm")
    assert open_encoder(folder).encode("prove") == pytest.approx(x / np.sqrt((x**2).sum()), abs=1e-4)


@pytest.mark.parametrize("make", [static, bert])
def test_a_head_learns_and_survives_json(tmp_path: Path, make: Any) -> None:
    folder = make(tmp_path / "e")
    texts = ["prove the integral", "a poem", "the sea", "prove a integral the", "integral", "poem the sea a"] * 8
    features = [extract(view({"prompt": text})) for text in texts]
    target = np.array([1.0 if "integral" in text else 0.0 for text in texts])
    parameters = fit_embedding(Examples(features, target, texts, folder))
    model = build("embedding", json.loads(json.dumps(parameters, allow_nan=False)))
    scores = np.array([model.score(item) for item in features])
    assert np.corrcoef(scores, target)[0, 1] > 0.8
    assert model.contributions(features[0])["embedding"] == pytest.approx(scores[0] - parameters["intercept"])


def test_what_is_no_encoder_or_another_one_is_refused(tmp_path: Path) -> None:
    folder = static(tmp_path / "s")
    parameters: dict[str, object] = {
        "folder": str(folder),
        "fingerprint": fingerprint(folder),
        "intercept": 0.0,
        "weights": [0.0] * SIZE,
    }
    assert build("embedding", parameters)
    with pytest.raises(ModelError, match="expected 8 numbers"):
        build("embedding", {**parameters, "weights": [0.0]})
    with pytest.raises(ModelError, match="holds another encoder"):
        build("embedding", {**parameters, "fingerprint": "0" * 64})
    with pytest.raises(ModelError, match="No such file"):
        build("embedding", {**parameters, "folder": str(tmp_path / "none")})
    other = bert(tmp_path / "b")
    (other / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(EncoderError, match="'gpt2'"):
        open_encoder(other)
    (folder / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(EncoderError, match=r"model\.safetensors"):
        open_encoder(folder)
    with pytest.raises(EncoderError, match="--encoder"):
        fit_embedding(Examples([], np.zeros(0), []))


def test_known_vectors_come_back_and_others_are_refused(tmp_path: Path) -> None:
    encoder = open_encoder(static(tmp_path / "s"))
    known = Known(fingerprint(tmp_path / "s"), {})
    for text in ("a poem", "prove the integral", "\ud800"):
        known.add(text, encoder.encode(text))
    known.write(tmp_path / "v.npz")
    again = Known.read(tmp_path / "v.npz")
    assert (len(again), again.size, again.fingerprint) == (3, SIZE, fingerprint(tmp_path / "s"))
    assert np.array_equal(again.encode("a poem"), encoder.encode("a poem"))
    assert not np.array_equal(again.encode("a poem"), again.encode("prove the integral"))
    assert "the sea" not in again
    with pytest.raises(EncoderError, match="without a vector"):
        again.encode("the sea")
    (tmp_path / "v.npz").write_bytes(b"nonsense")
    with pytest.raises(EncoderError, match="holds no vectors"):
        Known.read(tmp_path / "v.npz")

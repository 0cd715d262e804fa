"""Models: features to one number, the higher the harder. One file each, one line each in `REGISTRY`.

A new model is a class with `from_parameters` and `score`, and a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from classifier.encoders import Encoder
from classifier.features import Features
from classifier.models.adapted import Adapted
from classifier.models.base import Model, ModelError
from classifier.models.blend import Blend
from classifier.models.constant import Constant
from classifier.models.embedding import Embedding
from classifier.models.head import Head
from classifier.models.length import Length
from classifier.models.linear import Linear
from classifier.models.neighbours import Neighbours
from classifier.models.random import Random
from classifier.models.trees import Trees
from classifier.models.words import Words


def build(kind: str, parameters: Mapping[str, object], encoder: Encoder | None = None) -> Model:
    """Return the model of this kind. Raises `ModelError` for an unknown kind or parameters that don't fit it.

    `encoder` stands for the one in the parameters' folder; training and evaluation give vectors computed before.
    """
    if encoder is not None and kind in _ENCODED:
        return _ENCODED[kind](parameters, encoder)
    maker = REGISTRY.get(kind)
    if maker is None:
        raise ModelError(f"unknown model {kind!r}; known: {', '.join(sorted(REGISTRY))}")
    return maker(parameters)


def base_score(model: Model, features: Features) -> float:
    """Return a model's score, without a correction that was learnt from traffic."""
    return model.base_score(features) if isinstance(model, Adapted) else model.score(features)


REGISTRY: Mapping[str, Callable[[Mapping[str, object]], Model]] = {
    "linear": Linear.from_parameters,
    "trees": Trees.from_parameters,
    "words": Words.from_parameters,
    # Trees on the features that added text can only raise.
    "growing": Trees.from_parameters,
    "neighbours": Neighbours.from_parameters,
    "embedding": Embedding.from_parameters,
    "head": Head.from_parameters,
    "blend": Blend.maker(build),
    # Held to the text's beginnings and ends.
    "guarded": Blend.maker(build),
    "adapted": Adapted.maker(build),
    "length": Length.from_parameters,
    "constant": Constant.from_parameters,
    "random": Random.from_parameters,
}
"""Kind to the function that rebuilds a model from an artefact's parameters."""
_ENCODED: Mapping[str, Callable[[Mapping[str, object], Encoder], Model]] = {
    "embedding": Embedding.from_parameters,
    "head": Head.from_parameters,
}

__all__ = ["REGISTRY", "Model", "ModelError", "base_score", "build"]

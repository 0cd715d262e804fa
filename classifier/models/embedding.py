"""A sentence encoder with a linear head: for comparison, and for who can spare tens of milliseconds a request.

The artefact holds the head and the fingerprint of the encoder's files; the encoder lies in a folder of the user's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from classifier.encoders import Encoder, EncoderError, fingerprint, open_encoder
from classifier.features import Features
from classifier.models.base import ModelError, number, numbers


@dataclass(frozen=True, slots=True)
class Embedding:
    """`intercept + weights . encode(text)`."""

    encoder: Encoder
    intercept: float
    weights: tuple[float, ...]

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, object], encoder: Encoder | None = None) -> Embedding:
        """Rebuild the head, and open the encoder unless it is given. Raises `ModelError`; see `encoder_of`."""
        encoder = encoder or encoder_of(parameters)
        return cls(encoder, number(parameters, "intercept"), numbers(parameters, "weights", encoder.size))

    def score(self, features: Features) -> float:
        """Return the head's value."""
        vector = self.encoder.encode(features.conversation.text)
        return self.intercept + float(sum(map(float.__mul__, self.weights, vector.tolist())))

    def contributions(self, features: Features) -> dict[str, float]:
        """Return the text's part as one: directions of the encoder have no names."""
        return {"embedding": self.score(features) - self.intercept}


def encoder_of(parameters: Mapping[str, object]) -> Encoder:
    """Open the encoder in the folder that an artefact names. Raises `ModelError` when its files are not those trained on."""
    folder, wanted = parameters.get("folder"), parameters.get("fingerprint")
    if not isinstance(folder, str) or not isinstance(wanted, str):
        raise ModelError("an embedding model needs `folder` and `fingerprint`")
    try:
        found = fingerprint(Path(folder))
        if found != wanted:
            raise ModelError(f"{folder}: holds another encoder ({found[:12]}) than the trained one ({wanted[:12]})")
        return open_encoder(Path(folder))
    except EncoderError as error:
        raise ModelError(str(error)) from None

"""`/v1/embeddings`: a bag of tokens hashed into a unit vector, so that like texts have like vectors."""

from __future__ import annotations

import base64
import math
import time
from array import array
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import orjson

from backends.simulator import tokens
from backends.simulator.answers import Answer
from backends.simulator.core import Core
from backends.simulator.delivery import Delivery
from backends.simulator.errors import RequestError, too_long_error
from backends.simulator.faults import Fault
from backends.simulator.http import Exchange
from backends.simulator.requests import EmbeddingRequest, load, numbers_of, parse
from backends.simulator.runner import Runner

DIMENSIONS = 384
"""Length of a vector if the request names none."""
_PLACES = 8
_NO_TOKEN = Answer(("",), ("",), "stop")


def vector(pieces: list[str], dimensions: int) -> list[float]:
    """The unit vector of a text's tokens; each token adds one or takes one off at 8 places."""
    values = [0.0] * dimensions
    for piece in pieces:
        for place in _places(piece):
            values[(place >> 1) % dimensions] += 1.0 if place & 1 else -1.0
    norm = math.sqrt(sum(value * value for value in values))
    if norm == 0.0:
        values[0], norm = 1.0, 1.0
    return [value / norm for value in values]


@lru_cache(maxsize=4096)
def _places(piece: str) -> tuple[int, ...]:
    digest = blake2b(piece.lower().encode("utf-8", "surrogatepass"), digest_size=4 * _PLACES).digest()
    return tuple(int.from_bytes(digest[at : at + 4], "little") for at in range(0, len(digest), 4))


def serve(core: Core, exchange: Exchange) -> None:
    """Answer one request. Raises RequestError."""
    request = parse(EmbeddingRequest, load(exchange.body))
    model = core.check_model(request.model)
    if request.encoding_format not in ("float", "base64"):
        raise RequestError(f"Unsupported encoding_format: {request.encoding_format}", param="encoding_format")
    texts = _texts(request)
    pieces = [tokens.pieces(text) for text in texts]
    for one in pieces:
        if not one:
            raise RequestError("The decoder prompt cannot be empty", param="input")
        if len(one) > core.settings.max_model_len:
            raise too_long_error(len(one), core.settings.max_model_len)
    delivery = EmbeddingDelivery(
        exchange, core.runner, core.fault(exchange), request=request, model=model, pieces=pieces,
        request_id=core.request_id(exchange),
    )  # fmt: skip
    core.begin(delivery, [_NO_TOKEN] * len(pieces), [len(one) for one in pieces])


def _texts(request: EmbeddingRequest) -> list[str]:
    given = request.input
    if isinstance(given, str):
        return [given]
    if not given:
        raise RequestError("input must not be empty", param="input")
    several = [given] if isinstance(given[0], int) else given
    try:
        return [one if isinstance(one, str) else tokens.decode(numbers_of(one)) for one in several]
    except tokens.UnknownTokenError as error:
        raise RequestError(str(error)) from None


class EmbeddingDelivery(Delivery):
    """One JSON object when every prompt was computed."""

    pooling = True

    def __init__(
        self,
        exchange: Exchange,
        runner: Runner,
        fault: Fault | None,
        *,
        request: EmbeddingRequest,
        model: str,
        pieces: list[list[str]],
        request_id: str,
    ) -> None:
        super().__init__(exchange, runner, fault)
        self.request = request
        self.model = model
        self.pieces = pieces
        self.id = f"embd-{request_id}"

    def done(self) -> None:
        """Send it."""
        body = {
            "id": self.id,
            "object": "list",
            "created": int(time.time()),
            "model": self.model,
            "data": [self._item(index, pieces) for index, pieces in enumerate(self.pieces)],
            "usage": {
                "prompt_tokens": self.prompt_tokens,
                "total_tokens": self.prompt_tokens,
                "completion_tokens": 0,
                "prompt_tokens_details": None,
                "completion_tokens_details": None,
            },
        }
        self.exchange.send(200, orjson.dumps(body))

    def _item(self, index: int, pieces: list[str]) -> dict[str, Any]:
        values: list[float] | str = vector(pieces, self.request.dimensions or DIMENSIONS)
        if self.request.encoding_format == "base64":
            values = base64.b64encode(array("f", values).tobytes()).decode()
        return {"index": index, "object": "embedding", "embedding": values}


__all__ = ["DIMENSIONS", "serve", "vector"]

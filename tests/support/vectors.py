"""A deterministic server of sentence vectors on a real socket: hashed words and trigrams, 384 dimensions."""

from __future__ import annotations

import json
from collections.abc import Callable

from router.cache.semantic.vector import embed
from tests.support.upstream import Exchange, Script, Send
from tests.support.wire import json_response

DIMENSIONS = 384


def vector_of(text: str) -> list[float]:
    """The text's vector; near for texts that share most of their words."""
    vector = [0.0] * DIMENSIONS
    for slot, weight in embed(text).items():
        vector[slot % DIMENSIONS] += weight
    return vector


def answers(make: Callable[[str], list[float]] = vector_of) -> Callable[[Exchange], Script]:
    """What to give a ScriptedUpstream as its `choose`."""

    def choose(exchange: Exchange) -> Script:
        body = exchange.json()
        assert exchange.target == "/v1/embeddings"
        data = [{"object": "embedding", "index": 0, "embedding": make(body["input"])}]
        return [Send(json_response(json.dumps({"object": "list", "model": body["model"], "data": data}).encode()))]

    return choose

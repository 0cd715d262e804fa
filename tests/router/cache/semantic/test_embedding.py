"""The server of vectors, asked under its base URL however that was written."""

from __future__ import annotations

import logging

import pytest

from router.cache.semantic.embedding import Embedder
from tests.support.upstream import ScriptedUpstream
from tests.support.vectors import answers


@pytest.mark.parametrize("end", ["", "/v1", "/v1/"])
async def test_an_address_may_end_as_clients_write_it(end: str) -> None:
    async with ScriptedUpstream() as up:
        up.choose = answers()
        embedder = Embedder("g", [up.url + end], "m", None, 5, logging.getLogger("bitgear"))
        assert await embedder.embed("a text") is not None
        assert up.exchanges[0].target == "/v1/embeddings"

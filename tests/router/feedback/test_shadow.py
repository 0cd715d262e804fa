"""What is kept of a compared request to learn from: numbers, and only where something was foretold."""

from __future__ import annotations

import logging
from typing import Any

import orjson
import pytest
from prometheus_client import CollectorRegistry

from classifier import load
from classifier.features import NAMES
from router.cache.capture import Capture
from router.config.loop import ShadowConfig
from router.config.runtime import Runtime, RuntimeVariant
from router.feedback.judges.pair import Tools
from router.feedback.metrics import FeedbackMetrics
from router.feedback.shadow import Server, Shadow
from router.feedback.watch import Sample
from router.proxy.outcome import Outcome
from router.proxy.surface import CHAT
from router.state import Fleet
from tests.support.upstream import ScriptedUpstream

SECRET = "the vault opens at seven with the word marigold"


@pytest.mark.parametrize(("risks", "kept"), [({"int4": 0.25}, True), ({}, False)])
def test_numbers_are_kept_where_a_risk_was_foretold_and_never_words(risks: dict[str, float], kept: bool) -> None:
    specs = tuple(
        RuntimeVariant(group="g", variant=p, precision=p, urls=("http://127.0.0.1:9",), served_model="m")
        for p in ("fp16", "int4")
    )
    group = Fleet(Runtime(variants=specs), {}, {}).groups["g"]
    settings = ShadowConfig.model_validate({"features": True})
    shadow = Shadow(settings, 1.0, Tools(), FeedbackMetrics(CollectorRegistry()), lambda _: None, logging.getLogger())
    own = load()
    shadow.classifier_of = lambda name: own
    body: dict[str, Any] = {"messages": [{"role": "user", "content": SECRET}]}
    sample = Sample(body, b"/v1/chat/completions", "chat.completions", Capture(1000), 1.0)
    outcome = Outcome("id", CHAT, began=0.0, group=group, variant=group.variants["int4"], risks=risks)
    found = shadow._seen(sample, outcome, group.variants["int4"])
    assert (found is not None) == kept
    if found is not None:
        assert found["risk"] == 0.25
        assert len(found["vector"]) == len(NAMES)
        assert set(found) == {"by", "precision", "risk", "score", "vector"}
        assert not any(word in orjson.dumps(found).decode() for word in SECRET.split() if len(word) > 3)


@pytest.mark.parametrize("end", ["", "/v1", "/v1/"])
async def test_a_judges_address_may_end_as_clients_write_it(end: str) -> None:
    async with ScriptedUpstream() as up:
        server = Server(up.url + end, None, 5)
        assert (await server.post("/v1/chat/completions", {"model": "m"}))["object"] == "chat.completion"
        assert up.exchanges[0].target == "/v1/chat/completions"
        server.close()

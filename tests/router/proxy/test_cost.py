"""What a request costs its key, by what became of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from router.decision import RequestFacts
from router.proxy.cost import cost, expected_cost
from router.proxy.deciding import Question
from router.proxy.outcome import Outcome
from router.proxy.surface import CHAT, ENDPOINTS, FEEDBACK, OTHER, ROUTE, Endpoint
from router.proxy.usage import Usage

MESSAGES, EMBEDDINGS = ENDPOINTS[b"/v1/messages"], ENDPOINTS[b"/v1/embeddings"]
FACTS = RequestFacts(prompt_tokens=40, output_tokens=100)
EXPECTED = 140.0


def ended(endpoint: Endpoint = CHAT, **more: Any) -> Outcome:
    question = Question(None, FACTS, {}, 40.0, None)  # type: ignore[arg-type]
    return Outcome("id", endpoint, 0.0, question=question, **{"attempts": 1, "status": 200, **more})


@pytest.mark.parametrize(
    ("outcome", "tokens"),
    [
        (ended(usage=Usage(13, 5)), 18),
        (ended(usage=Usage(13, 5), attempts=0, cache="hit"), 0),
        (ended(usage=Usage(13, 5), attempts=1, cache="hit"), 0),
        (ended(usage=Usage(13, 5), stream=True, pieces=9), 18),
        (ended(attempts=0, status=499, error="client_left"), 0),
        (ended(attempts=0, status=503, error="overloaded"), 0),
        # A whole answer that never told its usage: as expected, or as its stream showed.
        (ended(), EXPECTED),
        (ended(stream=True, pieces=9), 49),
        # The client left: before the first token, in a stream, in a plain answer; with the usage known all the same.
        (ended(stream=True, status=499, error="client_left"), 40),
        (ended(stream=True, status=499, error="client_left", pieces=3), 43),
        (ended(status=499, error="client_left"), EXPECTED),
        (ended(stream=True, status=499, error="client_left", pieces=9, usage=Usage(13, 5)), 18),
        # The variant failed: before the first token, and after it.
        (ended(status=502, error="upstream_error"), 0),
        (ended(status=400, error="http_400"), 0),
        (ended(stream=True, status=504, error="first_token_timeout"), 0),
        (ended(stream=True, error="closed", pieces=3), 43),
        (ended(stream=True, status=503, error="stopping", pieces=3), 43),
        # Anthropic's streams begin with the prompt's usage.
        (ended(MESSAGES, stream=True, status=499, error="client_left", pieces=7, usage=Usage(13, 1)), 20),
        (ended(MESSAGES, stream=True, pieces=7, usage=Usage(13, 5)), 18),
        (ended(EMBEDDINGS, usage=Usage(13, 0)), 13),
    ],
)
def test_cost(outcome: Outcome, tokens: float) -> None:
    assert cost(outcome, EXPECTED) == tokens


def test_paths_that_only_pass_through_cost_what_their_answer_tells() -> None:
    assert cost(ended(OTHER, usage=Usage(3, 4)), 0.0) == 7
    for more in ({}, {"stream": True, "pieces": 5}, {"stream": True, "status": 499, "error": "client_left"}):
        assert cost(ended(OTHER, **more), 0.0) == 0


def test_what_is_expected() -> None:
    question = Question(None, FACTS, {}, 40.0, None)  # type: ignore[arg-type]
    assert expected_cost(ended(), question) == 140
    assert expected_cost(ended(sequences=3), question) == 340
    assert expected_cost(ended(EMBEDDINGS, sequences=3), question) == 40
    assert expected_cost(ended(OTHER), question) == 0


def test_no_more_is_expected_of_a_prompt_than_any_variant_takes() -> None:
    question = Question(None, FACTS, {}, 40.0, None)  # type: ignore[arg-type]
    short, long, unknown = (SimpleNamespace(max_model_len=n) for n in (5, 30, None))
    for variants, tokens in (({"a": short, "b": long, "c": unknown}, 130), ({"c": unknown}, 140), ({"a": short}, 105)):
        assert expected_cost(ended(group=SimpleNamespace(variants=variants)), question) == tokens
    group = SimpleNamespace(variants={"b": long})
    assert expected_cost(ended(EMBEDDINGS, group=group), question) == 30
    # Several prompts may be longer together.
    assert expected_cost(ended(EMBEDDINGS, group=group, sequences=2), question) == 40


def test_what_computes_nothing_costs_nothing() -> None:
    free = {ROUTE, FEEDBACK, *(ENDPOINTS[p] for p in (b"/tokenize", b"/detokenize", b"/v1/messages/count_tokens"))}
    assert {e for e in (OTHER, ROUTE, FEEDBACK, *ENDPOINTS.values()) if not e.costs} == free

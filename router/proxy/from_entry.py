"""Answering a request from an entry, as the plain answer or the stream that it asks for."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import orjson

from router.cache.answers import as_stream
from router.cache.entry import Entry
from router.decision import Decision
from router.proxy.client import Client
from router.proxy.deciding import Decider, Question
from router.proxy.headers import decision_header
from router.proxy.outcome import Outcome
from router.proxy.planning import Headers, Plan
from router.proxy.sse import rename_model
from router.proxy.usage import Usage

_PIECE = 64 * 1024
"""Bytes of a replayed stream that are sent at once: a slow reader holds up the rest."""


class Request(NamedTuple):
    """One request on its way through the cache."""

    plan: Plan
    client: Client
    outcome: Outcome
    question: Question
    upstream: Callable[[], Awaitable[None]]


class FromEntry:
    """Says whether an entry fits a request, and answers with it."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider

    async def answer(self, request: Request, entry: Entry | int | None, likeness: float | None = None) -> bool:
        """Answer from an entry; False, with nothing sent, where it does not fit."""
        decision = self.fitting(request, entry)
        if decision is None or not isinstance(entry, Entry):
            return False
        outcome, plan, target = request.outcome, request.plan, request.question.target
        variant = target.group.variants[entry.variant]
        age_s = entry.age_s(time.time_ns() // 1_000_000)
        outcome.cache, outcome.cache_age_s, outcome.status = "hit", age_s, 200
        outcome.decision, outcome.variant = decision, variant
        outcome.cache_likeness = likeness
        alike = b"" if likeness is None else b"; likeness=%.2f" % likeness
        outcome.usage = Usage(entry.prompt_tokens, entry.completion_tokens)
        headers = [
            (b"x-request-id", outcome.request_id.encode()),
            (b"x-bitgear-cache", b"hit; age=%d" % age_s + alike),
            (b"age", b"%d" % age_s),
            (b"x-bitgear-decision", decision_header(target.group.name, decision, None, variant.spec.simulated)),
        ]
        body = as_stream(entry.body, entry.kind, plan.usage) if outcome.stream else entry.body
        if entry.served != target.asked:
            body = rename_model(body, orjson.dumps(entry.served), orjson.dumps(target.asked))
        if outcome.stream:
            await _replay(request.client, headers, body)
        else:
            await request.client.answer(200, [(b"content-type", b"application/json"), *headers], body)
        return True

    def fitting(self, request: Request, entry: Entry | int | None) -> Decision | None:
        """Return the decision by which the request takes this entry; None where it is too old, or not precise enough.

        The request's own decision is made as if the answer were still to be had: an entry serves where that allows
        its precision. Of vectors, and under the policy of full precision, that is the highest one alone.
        """
        if not isinstance(entry, Entry):
            return None
        limit_s = request.plan.control.max_age_s
        if limit_s is not None and entry.age_s(time.time_ns() // 1_000_000) > limit_s:
            return None
        question = request.question
        decision = self._decider.decide(question, time.monotonic())
        candidate = next((c for c in decision.candidates if c.variant == entry.variant), None)
        bound = question.facts.max_risk
        if candidate is None or (bound is not None and candidate.risk > bound):
            return None
        if question.target.pin is None and not candidate.allowed:
            return None
        # Nothing was chosen: neither the choice's propensity nor an exploration means anything here.
        return decision._replace(
            variant=entry.variant,
            reason="cached",
            risk=candidate.risk,
            threshold=candidate.threshold,
            propensity=1.0,
            propensities=tuple(0.0 for _ in decision.candidates),
            explored=False,
        )


async def _replay(client: Client, headers: Headers, body: bytes) -> None:
    stream = [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    ]
    await client.start(200, [*stream, *headers])
    for begin in range(0, len(body) - _PIECE, _PIECE):
        await client.write(body[begin : begin + _PIECE])
    rest = len(body) % _PIECE or _PIECE
    await client.finish(body[-rest:])

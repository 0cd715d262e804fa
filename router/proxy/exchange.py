"""One request's way to a replica and back, with another replica's help as long as the client has seen no token."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from backends.wire import Connection, Limits, UpstreamError
from router.cache.capture import Capture
from router.config.schema import TimeoutConfig
from router.decision import Decision
from router.proxy.client import Client, ClientLeft
from router.proxy.deciding import Decider, Question
from router.proxy.errors import ApiError
from router.proxy.failures import Refused, classify, retry_after_s, to_client
from router.proxy.headers import content_type, decision_header, downstream_headers, upstream_headers
from router.proxy.json_body import Body, with_model, with_usage
from router.proxy.large import Light
from router.proxy.outcome import Outcome
from router.proxy.relay import relay_stream, relay_whole
from router.proxy.surface import OTHER
from router.state import Replica, Variant

_MAX_FAILURES = 2
"""Attempts that may fail hard: a request that kills engines must not be handed to all of them."""
_MAX_REFUSED_BODY = 1024 * 1024
_ANSWERS = (b"application/json", b"text/event-stream")
_ERRORS = (b"application/json", b"application/problem+json")


class Exchange:
    """Runs one resolved request to its end; everything that happened is in `outcome`."""

    def __init__(
        self,
        client: Client,
        outcome: Outcome,
        question: Question,
        decider: Decider,
        timeouts: TimeoutConfig,
        on_retry: Callable[[Outcome, str], None],
        capture: Capture | None = None,
    ) -> None:
        self._client = client
        self._outcome = outcome
        self._question = question
        self._decider = decider
        self._timeouts = timeouts
        self._on_retry = on_retry
        self._capture = capture
        self._task = asyncio.current_task()
        self._connection: Connection | None = None
        self._excluded: list[Replica] = []
        self._hide_usage = False
        self._as_json = True
        self._light: Light | None = None

    async def run(
        self,
        method: bytes,
        path: bytes,
        headers: list[tuple[bytes, bytes]],
        raw: bytes,
        body: Body,
        *,
        as_json: bool = True,
        light: Light | None = None,
    ) -> None:
        """Answer the client; `raw` is the skeleton of a `light` body. Raises ApiError when no replica could, ClientLeft when the client went away."""
        self._as_json, self._light = as_json, light
        self._client.watch(self._leave)
        try:
            await self._attempts(method, path, headers, raw, body)
        except asyncio.CancelledError:
            if not self._client.left or self._task is None:
                raise
            self._task.uncancel()
            raise ClientLeft from None
        finally:
            self._client.unwatch()

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.abort()
        elif self._task is not None:
            self._task.cancel()

    async def _attempts(
        self, method: bytes, path: bytes, headers: list[tuple[bytes, bytes]], raw: bytes, body: Body
    ) -> None:
        group, failures = self._question.target.group, 0
        last: UpstreamError | Refused | None = None
        while True:
            now = time.monotonic()
            decision = self._decider.decide(self._question, now, self._excluded)
            variant = group.variants[decision.variant] if decision.variant is not None else None
            replica = variant.pick(now, self._excluded) if variant is not None else None
            if variant is None or replica is None or failures >= _MAX_FAILURES:
                raise self._give_up(decision, last)
            outcome = self._outcome
            outcome.decision, outcome.variant, outcome.replica = decision, variant, replica
            outcome.attempts += 1
            request = self._request_bytes(raw, body, variant)
            try:
                await self._attempt(variant, replica, method, path, headers, request)
                return
            except (UpstreamError, Refused) as error:
                if self._client.left:
                    raise ClientLeft from None
                last = error
                failures += self._blame(replica, error)
                if outcome.trace is not None:
                    outcome.trace.attempt_failed(str(error.status) if isinstance(error, Refused) else error.failure)
                self._on_retry(outcome, str(error))
                self._exclude(variant, replica, error)

    def _request_bytes(self, raw: bytes, body: Body, variant: Variant) -> bytes:
        served = variant.spec.served_model
        if "model" in body and body["model"] != served:
            raw = with_model(raw, body, served)
            body = {**body, "model": served}
        self._hide_usage = self._hides_usage(body)
        raw = with_usage(raw, body) if self._hide_usage else raw
        return raw if self._light is None else self._light.whole(raw)

    def _hides_usage(self, body: Body) -> bool:
        if not (self._outcome.endpoint.injects_usage and self._outcome.stream):
            return False
        options = body.get("stream_options")
        return not (isinstance(options, dict) and options.get("include_usage"))

    async def _attempt(
        self,
        variant: Variant,
        replica: Replica,
        method: bytes,
        path: bytes,
        headers: list[tuple[bytes, bytes]],
        request: bytes,
    ) -> None:
        outcome = self._outcome
        now, group = time.monotonic(), outcome.group
        running, waiting = replica.load(now, 10.0)
        outcome.running, outcome.queued = running + 1.0, waiting > 0.0
        tokens, answered = group.prompt_tokens(outcome.units) if group is not None else 0, False
        outcome.ahead, outcome.mark = replica.send(now, tokens)
        replica.requests += 1
        up = upstream_headers(headers, outcome.request_id, replica.headers, as_json=self._as_json)
        if outcome.trace is not None:
            up = outcome.trace.attempt(outcome, up)
        try:
            connection = await self._send(replica, method, path, up, request)
            try:
                await self._receive(connection, variant, replica)
                answered = outcome.status < 400
            finally:
                self._connection = None
                replica.pool.release(connection)
        finally:
            computed = answered or outcome.first_token_at is not None
            replica.end(time.monotonic(), tokens, now, outcome.mark, computed=computed)

    async def _send(
        self, replica: Replica, method: bytes, path: bytes, headers: list[tuple[bytes, bytes]], request: bytes
    ) -> Connection:
        pool = replica.pool
        connection = pool.reusable()
        while True:
            if connection is None:
                connection = await pool.connect(min(self._timeouts.connect_s, self._left_s()))
            self._connection = connection
            self._outcome.sent_up = time.monotonic()
            connection.send(pool.head(method, path, headers, len(request)) + request, self._limits())
            try:
                while connection.headers is None and not connection.done:
                    await connection.wait()
                if connection.error is not None:
                    raise connection.error
                return connection
            except UpstreamError as error:
                self._connection = None
                connection.abort()
                if not error.stale or self._client.left:
                    raise
                # The server had closed the kept connection before it saw the request: a fresh one serves it.
                connection = None

    def _left_s(self) -> float:
        return max(0.05, self._outcome.began + self._timeouts.total_s - time.monotonic())

    def _limits(self) -> Limits:
        left = self._left_s()
        # A whole answer's first byte comes after its last token.
        first = self._timeouts.first_token_s if self._outcome.stream else left
        return Limits(self._timeouts.connect_s, min(first, left), self._timeouts.between_tokens_s, left)

    async def _receive(self, connection: Connection, variant: Variant, replica: Replica) -> None:
        status, headers = connection.status, connection.headers or []
        if status >= 400:
            body = await connection.read_all(_MAX_REFUSED_BODY)
            refused = classify(status, headers, body)
            if refused is not None:
                raise refused
            replica.success()
            await self._pass_error(status, headers, body, variant)
            return
        down = self._down_headers(variant, headers)
        asked, capture = self._question.target.asked, self._capture if status == 200 else None
        kind = content_type(headers)
        if self._outcome.endpoint is not OTHER and (status >= 300 or kind not in _ANSWERS):
            # A page of some other server, a redirect, nothing at all: whatever stands there is not the variant.
            raise UpstreamError(
                "protocol", f"the replica answered HTTP {status} with {kind.decode('latin-1') or 'no type'}"
            )
        if kind == b"text/event-stream":
            hide = self._hide_usage
            await relay_stream(connection, self._client, self._outcome, status, down, asked, hide, capture)
        else:
            await relay_whole(connection, self._client, self._outcome, status, down, asked, capture)

    def _down_headers(self, variant: Variant, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        outcome = self._outcome
        down = downstream_headers(headers)
        down.append((b"x-request-id", outcome.request_id.encode()))
        down.append((b"x-bitgear-cache", outcome.cache.encode()))
        if outcome.decision is not None and outcome.group is not None and outcome.replica is not None:
            value = decision_header(outcome.group.name, outcome.decision, outcome.replica.index, variant.spec.simulated)
            down.append((b"x-bitgear-decision", value))
        return down

    async def _pass_error(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes, variant: Variant) -> None:
        # The client's own error, in the replica's own words.
        self._outcome.status = status
        self._outcome.error = f"http_{status}"
        page = self._outcome.endpoint is not OTHER and content_type(headers) not in _ERRORS
        if self._client.started or page:
            # A page of whatever stands before the variant helps no client's library.
            raise ApiError(status, f"The variant refused the request with HTTP {status}.", None, "invalid_request")
        await self._client.answer(status, self._down_headers(variant, headers), body)

    def _blame(self, replica: Replica, error: UpstreamError | Refused) -> int:
        """Hold an error against the replica; return 1 for a hard failure, 0 for a refusal."""
        now = time.monotonic()
        if isinstance(error, UpstreamError) and error.own:
            return 1
        if isinstance(error, Refused):
            if error.kind == "too_long":
                replica.success()
                return 0
            if error.kind == "overloaded":
                replica.cool_down(now, retry_after_s(error.headers, time.time()))
                return 0
        replica.failure(now, str(error))
        return 1

    def _exclude(self, variant: Variant, replica: Replica, error: UpstreamError | Refused) -> None:
        if isinstance(error, Refused) and error.kind == "too_long":
            # The other replicas have the same context length, and so has every variant that isn't longer.
            limit = variant.max_model_len or 0
            for other in self._question.target.group.variants.values():
                if other is variant or (other.max_model_len or 0) <= limit:
                    self._excluded.extend(other.replicas)
        else:
            self._excluded.append(replica)

    def _give_up(self, decision: Decision, last: UpstreamError | Refused | None) -> Exception:
        group = self._question.target.group
        pin = self._question.target.pin
        variants = [group.variants[pin]] if pin is not None else list(group.variants.values())
        retry_s = group.retry_after_s(time.monotonic(), variants)
        if isinstance(last, Refused) and last.kind == "too_long":
            return last
        if last is not None:
            return to_client(last, retry_s)
        self._outcome.decision = decision
        if decision.reason == "max_risk_unavailable" and pin is not None:
            words = f"The variant that is asked for, {pin!r}, is above the bound on risk (x-bitgear-max-risk)."
            return ApiError(400, words, "x-bitgear-max-risk", "max_risk_unavailable")
        if decision.reason == "max_risk_unavailable":
            return ApiError(
                503,
                "No live variant is within the bound on risk (x-bitgear-max-risk, or embeddings, which take full precision only).",
                None,
                "max_risk_unavailable",
                retry_s,
            )
        if decision.reason == "overloaded":
            return ApiError(
                503,
                f"No variant of {group.name!r} would answer in time (scenario {decision.scenario}); try again later.",
                None,
                "overloaded",
                max(1.0, retry_s),
            )
        what = f"Variant {pin!r} of {group.name!r}" if pin is not None else f"Every variant of {group.name!r}"
        return ApiError(
            503, f"{what} is starting, drained, overloaded or down.", "model", "variant_unavailable", retry_s
        )

"""The applications' address as one pure ASGI callable: OpenAI's surface, the decision alone, health."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import Any
from urllib.parse import parse_qs, unquote

import orjson

from router.feedback.service import MOST_BYTES, Quality
from router.keys.table import Admitted
from router.proxy.client import Client, ClientLeft, Receive, Scope, Send
from router.proxy.cost import cost, expected_cost
from router.proxy.deciding import Decider, Question
from router.proxy.errors import ApiError, MethodNotAllowed
from router.proxy.exchange import Exchange
from router.proxy.explain import explain
from router.proxy.failures import Refused
from router.proxy.headers import decision_header, downstream_headers, with_credential
from router.proxy.json_body import Body, parse_body
from router.proxy.large import LARGE, lighten
from router.proxy.learn import learn
from router.proxy.listener import CONNECTION, WHOLE
from router.proxy.outcome import Outcome
from router.proxy.resolve import Directives, model_names, read_directives, request_id_of, resolve
from router.proxy.serving import Serving
from router.proxy.surface import CHAT, ENDPOINTS, FEEDBACK, OTHER, ROUTE, Endpoint
from router.proxy.validation import sequences, validate
from router.state import Fleet
from router.telemetry import Telemetry
from router.telemetry.later import Later
from router.telemetry.logs import say

_JSON = (b"content-type", b"application/json")
_OWN = {b"/v1/route": ROUTE, b"/v1/feedback": FEEDBACK}


class ProxyApp:
    """Serves `/v1/*`, `/tokenize`, `/detokenize` and `/health`."""

    def __init__(self, serving: Serving, telemetry: Telemetry, quality: Quality | None = None) -> None:
        self.serving = serving
        """What the next request is served with; replaced whole, never changed."""
        self._quality = quality
        self._telemetry = telemetry
        self._accounts = Later(self._account, telemetry.log)
        self._started_unix = int(time.time())
        self.inflight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; whatever happens, the client gets an answer in its own format."""
        if scope["type"] != "http":
            return
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        if path == b"/health":
            # A full house is not a sick one: asked before anything is counted.
            await Client(receive, send).answer(200, [_JSON], b'{"status":"ok"}')
            return
        endpoint = _OWN.get(path) or ENDPOINTS.get(path, OTHER)
        # Taken out: the connection holds its scope, and a circle would wait for a rare search of all objects.
        client = Client(receive, send, scope.pop(CONNECTION, None))
        outcome = Outcome(request_id_of(headers), endpoint, time.monotonic())
        tracing = self._telemetry.tracing
        if tracing is not None:
            outcome.trace = tracing.begin(headers, outcome, scope["method"])
        self.inflight += 1
        admitted: Admitted | None = None
        try:
            try:
                if self.inflight > self.serving.config.server.max_concurrent:
                    raise ApiError(503, "Bitgear is at its limit of requests in flight.", None, "overloaded", 1.0)
                keys = self.serving.keys
                if keys is not None:
                    costs = endpoint.costs and scope["method"] == "POST"
                    admitted = await keys.admit(headers, outcome.began, costs=costs)
                    if admitted.limited:
                        client.more = partial(_limits, admitted)
                    headers = with_credential(headers, admitted.key)
                await self._route(scope, client, outcome, path, headers, admitted)
            except ClientLeft:
                outcome.status, outcome.error = 499, "client_left"
            except ApiError as error:
                await self._fail(client, outcome, error)
            except Refused as refused:
                outcome.status, outcome.error = refused.status, f"http_{refused.status}"
                await client.answer(
                    refused.status, [*downstream_headers(refused.headers), *self._ours(outcome)], refused.body
                )
            except asyncio.CancelledError:
                # The server stops and its time to drain is over; what it would say itself is no error a client can read.
                await self._fail(client, outcome, ApiError(503, "Bitgear is stopping.", None, "stopping", 1.0))
            except Exception:
                say(
                    self._telemetry.log,
                    logging.ERROR,
                    "request failed inside Bitgear",
                    trace=True,
                    id=outcome.request_id,
                )
                await self._fail(
                    client, outcome, ApiError(500, "Bitgear failed on this request.", None, "internal_error")
                )
            finally:
                # What others waited for may have come in faster than this client reads.
                await client.flush()
        finally:
            self.inflight -= 1
            if admitted is not None:
                admitted.release()
                if admitted.taken is not None:
                    admitted.settle(cost(outcome, admitted.taken), time.monotonic())
            outcome.ended, outcome.at = time.monotonic(), round(time.time(), 3)
            if outcome.group is not None:
                # At once: the next decision is made of it.
                learn(outcome, outcome.ended)
            self._telemetry.log_end(outcome)
            self._accounts.put(outcome)

    def settle(self) -> None:
        """Make the accounts of all requests that have ended."""
        self._accounts.settle()

    def _account(self, outcome: Outcome) -> None:
        self._telemetry.finished(outcome)
        if outcome.watch is not None and self._quality is not None:
            self._quality.finished(outcome, outcome.watch)

    async def _route(
        self,
        scope: Scope,
        client: Client,
        outcome: Outcome,
        path: bytes,
        headers: list[tuple[bytes, bytes]],
        admitted: Admitted | None,
    ) -> None:
        method = scope["method"]
        if method in ("GET", "HEAD") and (path == b"/v1/models" or path.startswith(b"/v1/models/")):
            await self._models(client, outcome, path, admitted)
        elif path in ENDPOINTS or path in _OWN:
            if method != "POST":
                raise MethodNotAllowed(f"{path.decode('latin-1')} takes POST, not {method}.")
            if outcome.endpoint is FEEDBACK:
                await self._feedback(client, outcome, headers)
            else:
                await self._body_request(scope, client, outcome, path, headers, admitted)
        elif path.startswith(b"/v1/") and not _climbs(path):
            await self._body_request(scope, client, outcome, path, headers, admitted)
        else:
            raise ApiError(404, f"Unknown path {path.decode('latin-1')[:200]}.", None, "unknown_path")

    async def _feedback(self, client: Client, outcome: Outcome, headers: list[tuple[bytes, bytes]]) -> None:
        raw = await client.body(headers, MOST_BYTES, self.serving.config.timeouts.body_s)
        if self._quality is None:
            raise ApiError(404, "Feedback is not taken here.", None, "feedback_off")
        answer = await client.unless_left(self._quality.take(raw, self.serving.caching.tenant(headers)))
        outcome.status = 200
        await client.answer(200, [_JSON, *self._ours(outcome)], answer)

    async def _models(self, client: Client, outcome: Outcome, path: bytes, admitted: Admitted | None) -> None:
        fleet = self.serving.fleet
        entries = [self._model_entry(fleet, name) for name in model_names(fleet, admitted)]
        outcome.status = 200
        if path == b"/v1/models":
            await client.answer(200, [_JSON, *self._ours(outcome)], orjson.dumps({"object": "list", "data": entries}))
            return
        wanted = path.removeprefix(b"/v1/models/").decode("latin-1")
        wanted = unquote(wanted)
        for entry in entries:
            if entry["id"] == wanted:
                await client.answer(200, [_JSON, *self._ours(outcome)], orjson.dumps(entry))
                return
        raise ApiError(404, f"The model {wanted[:128]!r} does not exist.", "model", "model_not_found")

    def _model_entry(self, fleet: Fleet, name: str) -> dict[str, Any]:
        group_name, _, variant_name = name.partition("@")
        group = fleet.groups[group_name]
        variants = [group.variants[variant_name]] if variant_name else list(group.variants.values())
        lengths = [v.max_model_len for v in variants if v.max_model_len is not None]
        entry: dict[str, Any] = {"id": name, "object": "model", "created": self._started_unix, "owned_by": "bitgear"}
        entry["max_model_len"] = max(lengths) if lengths else None
        entry["root"] = group_name
        entry["precision"] = variants[0].spec.precision if variant_name else None
        if any(v.spec.simulated for v in variants):
            entry["simulated"] = True
        return entry

    async def _body_request(
        self,
        scope: Scope,
        client: Client,
        outcome: Outcome,
        path: bytes,
        headers: list[tuple[bytes, bytes]],
        admitted: Admitted | None,
    ) -> None:
        config = self.serving.config
        most = int(config.server.max_body_mib * 1024 * 1024)
        raw = await client.body(headers, most, config.timeouts.body_s, whole=WHOLE in scope)
        endpoint = outcome.endpoint
        # On a path that only passes through, the body may be anything, a form with an audio file for example.
        as_json = endpoint is not OTHER or raw[:64].lstrip()[:1] == b"{"
        # What the cache may take is looked at as it is: all of it is part of the key.
        kept = config.cache.max_request_kib * 1024 if config.cache.enabled else 0
        light = await lighten(raw) if as_json and len(raw) > max(LARGE, kept) else None
        text = raw if light is None else light.skeleton
        # Taken once, and only now: a slow body must not bring back what was changed meanwhile.
        serving = self.serving
        directives = read_directives(headers, outcome.request_id, serving.fleet.scenarios)
        if admitted is not None:
            directives, headers = _with_defaults(admitted, directives, headers)
        body: Body = parse_body(text) if as_json else {}
        model = body.get("model")
        if model is None and endpoint is OTHER:
            model = _query_model(scope)
            if model is None:
                raise _unknown(path)
        target = resolve(model, directives, serving.fleet, admitted)
        outcome.group = target.group
        if endpoint is ROUTE:
            endpoint = _route_endpoint(body)
        if endpoint is not OTHER:
            validate(body, endpoint)
        elif target.pin is None:
            raise _unknown(path, next(iter(target.group.variants.values())).spec.pinned)
        question = serving.decider.question(body, endpoint, target, directives)
        outcome.question, outcome.units, outcome.risks = question, question.units, question.risks
        outcome.stream = bool(body.get("stream"))
        outcome.sequences = sequences(body)
        if outcome.endpoint is ROUTE:
            await self._decide_only(client, outcome, question, serving.decider)
            return
        if admitted is not None and endpoint.costs:
            admitted.take_tokens(expected_cost(outcome, question), time.monotonic())
        query: bytes = scope.get("query_string", b"")
        upstream_path = path + b"?" + query if query else path
        caching = serving.caching
        plan = caching.plan(endpoint, target, upstream_path, headers, raw, body)
        capture = plan.capture if plan is not None else None
        outcome.tenant = plan.tenant if plan is not None else caching.tenant(headers)
        if self._quality is not None and endpoint.generates:
            outcome.watch = self._quality.watch(outcome, target, body, upstream_path, raw, capture)
            capture = outcome.watch.capture or capture
        exchange = Exchange(
            client,
            outcome,
            question,
            serving.decider,
            serving.config.timeouts,
            self._telemetry.retried,
            capture,
        )
        run = partial(
            exchange.run, scope["method"].encode(), upstream_path, headers, text, body, as_json=as_json, light=light
        )
        try:
            if plan is None:
                await run()
            else:
                await caching.serve(plan, client, outcome, question, run)
        finally:
            if self._telemetry.drift is not None and target.group.name not in serving.classifiers:
                # Only now: no client waits for it.
                self._telemetry.drift.saw(body, question.risks)

    async def _decide_only(self, client: Client, outcome: Outcome, question: Question, decider: Decider) -> None:
        # The policy's own choice, explained: how likely another one is drawn stands beside each variant.
        target = question.target
        decision = decider.decide(question._replace(dice=1.0), outcome.began)
        outcome.decision, outcome.status = decision, 200
        answer = {
            "request_id": outcome.request_id,
            "model": target.asked,
            "group": target.group.name,
            "decision": explain(decision, question),
        }
        await client.answer(200, [_JSON, *self._ours(outcome)], orjson.dumps(answer))

    def _ours(self, outcome: Outcome) -> list[tuple[bytes, bytes]]:
        ours = [(b"x-request-id", outcome.request_id.encode())]
        if outcome.decision is not None and outcome.group is not None:
            chosen = outcome.group.variants.get(outcome.decision.variant or "")
            value = decision_header(
                outcome.group.name, outcome.decision, None, chosen is not None and chosen.spec.simulated
            )
            ours.append((b"x-bitgear-decision", value))
        return ours

    async def _fail(self, client: Client, outcome: Outcome, error: ApiError) -> None:
        outcome.status = error.status
        outcome.error = error.code or error.type
        dialect = outcome.endpoint.dialect
        if client.finished:
            return
        if client.started:
            await client.finish(error.event(dialect))
            return
        head = [_JSON, *error.headers(), *self._ours(outcome)]
        if error.status in (408, 413):
            # The rest of the body is still on its way; this connection is of no more use.
            head.append((b"connection", b"close"))
        await client.answer(error.status, head, error.body(dialect))


def _limits(admitted: Admitted) -> list[tuple[bytes, bytes]]:
    return admitted.headers(time.monotonic())


def _with_defaults(
    admitted: Admitted, directives: Directives, headers: list[tuple[bytes, bytes]]
) -> tuple[Directives, list[tuple[bytes, bytes]]]:
    """Return what the key says for requests that say nothing themselves."""
    record = admitted.record
    if record.scenario is not None and directives.scenario is None:
        directives = directives._replace(scenario=record.scenario)
    if record.cache == "none" and not any(name == b"cache-control" for name, _ in headers):
        headers = [*headers, (b"cache-control", b"no-store")]
    return directives, headers


def _unknown(path: bytes, example: str | None = None) -> ApiError:
    words = f"Unknown path {path.decode('latin-1')[:200]}: it passes through only for a pinned variant"
    words += f", for example model {example!r}." if example else ", named by `model` in the body or the query."
    return ApiError(404, words, "model" if example else None, "unknown_path")


def _climbs(path: bytes) -> bool:
    # A server behind the replica's own front might resolve these to a place outside /v1: some decode twice, take a
    # backslash for a slash, leave out what stands after a semicolon, or end at a zero.
    text = unquote(unquote(path.decode("latin-1"), "latin-1"), "latin-1")
    if any(character < " " for character in text):
        return True
    return any(part.partition(";")[0] in (".", "..") for part in text.replace("\\", "/").split("/"))


def _query_model(scope: Scope) -> str | None:
    values = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("model")
    return values[0] if values else None


def _route_endpoint(body: Body) -> Endpoint:
    for path in (b"/v1/chat/completions", b"/v1/completions", b"/v1/responses"):
        endpoint = ENDPOINTS[path]
        if endpoint.required in body:
            return endpoint
    return CHAT

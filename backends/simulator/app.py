"""The simulated server: which path does what."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from backends.settings import Precision, SimulatorSettings
from backends.simulator import chat, completions, embeddings, messages, responses, tokens
from backends.simulator.core import VERSION, Core
from backends.simulator.errors import RequestError, validation_error
from backends.simulator.exposition import Exposition
from backends.simulator.faults import Fault
from backends.simulator.http import Exchange, Server
from backends.simulator.prompts import render_chat
from backends.simulator.requests import DetokenizeRequest, TokenizeRequest, load, parse

Handler = Callable[[Core, Exchange], None]


class Simulator:
    """One simulated vLLM server of one model at one precision."""

    def __init__(
        self, settings: SimulatorSettings, *, model: str, precision: Precision, aliases: tuple[str, ...] = ()
    ) -> None:
        self.core = Core(settings, model=model, precision=precision, aliases=aliases)
        self.server = Server(self.handle)
        exposition = Exposition(self.core.metrics)
        self._routes: dict[str, tuple[tuple[str, ...], Handler]] = {
            "/v1/chat/completions": (("POST",), chat.serve),
            "/v1/completions": (("POST",), completions.serve),
            "/v1/responses": (("POST",), responses.serve),
            "/v1/messages": (("POST",), messages.serve),
            "/v1/messages/count_tokens": (("POST",), messages.count),
            "/v1/embeddings": (("POST",), embeddings.serve),
            "/v1/models": (("GET",), _models),
            "/tokenize": (("POST",), _tokenize),
            "/detokenize": (("POST",), _detokenize),
            "/health": (("GET",), _nothing),
            "/ping": (("GET", "POST"), _nothing),
            "/version": (("GET",), lambda core, exchange: _send(exchange, {"version": VERSION})),
            "/load": (("GET",), lambda core, exchange: _send(exchange, {"server_load": core.in_flight})),
            "/metrics": (("GET",), lambda core, exchange: _page(exchange, exposition)),
            "/sim/faults": (("POST",), _set_faults),
            "/sim/state": (("GET",), self._state),
        }

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request, or see to it that it will be answered."""
        methods, route = self._routes.get(exchange.path, ((), None))
        if route is None:
            exchange.send(404, b'{"detail":"Not Found"}')
        elif exchange.method not in methods:
            exchange.send(405, b'{"detail":"Method Not Allowed"}', headers=(("allow", ", ".join(methods)),))
        else:
            try:
                route(self.core, exchange)
            except RequestError as error:
                # what the schema refuses, vLLM answers in OpenAI's shape everywhere
                anthropic = exchange.path.startswith("/v1/messages") and error.kind != "Bad Request"
                exchange.send(
                    error.status, messages.error_body(error) if anthropic else error.body(), headers=error.headers
                )

    def _state(self, core: Core, exchange: Exchange) -> None:
        _send(exchange, {**core.state(), "connections": len(self.server.connections)})


def _send(exchange: Exchange, content: Any) -> None:
    exchange.send(200, orjson.dumps(content))


def _nothing(core: Core, exchange: Exchange) -> None:
    exchange.send(200, b"", None)


def _page(exchange: Exchange, exposition: Exposition) -> None:
    exchange.send(200, exposition.page(), "text/plain; version=0.0.4; charset=utf-8")


def _set_faults(core: Core, exchange: Exchange) -> None:
    """Replace the faults in force by one or a list; an empty list ends them."""
    data = load(exchange.body)
    try:
        faults = TypeAdapter(list[Fault]).validate_python(data if isinstance(data, list) else [data])
    except ValidationError as error:
        raise validation_error([dict(item) for item in error.errors(include_url=False)]) from None
    core.faults.replace(faults)
    _send(exchange, {"faults": [fault.model_dump() for fault in faults]})


def _tokenize(core: Core, exchange: Exchange) -> None:
    request = parse(TokenizeRequest, load(exchange.body))
    core.check_model(request.model)
    text = render_chat(request.messages) if request.messages is not None else request.prompt or ""
    numbers = tokens.encode(text)
    content = {"count": len(numbers), "max_model_len": core.settings.max_model_len, "tokens": numbers}
    _send(exchange, {**content, "token_strs": tokens.pieces(text) if request.return_token_strs else None})


def _detokenize(core: Core, exchange: Exchange) -> None:
    request = parse(DetokenizeRequest, load(exchange.body))
    core.check_model(request.model)
    _send(exchange, {"prompt": tokens.decode(request.tokens, skip_unknown=True)})


def _models(core: Core, exchange: Exchange) -> None:
    _send(exchange, {"object": "list", "data": [_card(core, name) for name in core.names]})


def _card(core: Core, name: str) -> dict[str, Any]:
    permission = {
        "id": f"modelperm-{sha256(name.encode()).hexdigest()[:16]}",
        "object": "model_permission",
        "created": core.started,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    return {
        "id": name,
        "object": "model",
        "created": core.started,
        "owned_by": "bitgear-simulator",
        "root": f"simulated/{core.model}-{core.precision}",
        "parent": None,
        "max_model_len": core.settings.max_model_len,
        "permission": [permission],
    }


__all__ = ["Simulator"]

"""What a vLLM server answers beside the requests under test: models, metrics, readiness probes."""

from __future__ import annotations

import json

from tests.support.script import Exchange, Script, Send, sends
from tests.support.wire import ChatWire, CompletionWire, dumps, error_body, json_response, response

PROBE_MESSAGES = [{"role": "user", "content": "Say hello."}]
"""A request with just this message is a readiness probe, and so is one of a single token."""


def is_probe(exchange: Exchange) -> bool:
    """Whether a POST asks whether the server is ready, rather than being under test."""
    if b'"max_' not in exchange.body:
        return False
    try:
        body = json.loads(exchange.body)
    except ValueError:
        return False
    if not isinstance(body, dict):
        return False
    return 1 in (body.get("max_tokens"), body.get("max_completion_tokens")) or body.get("messages") == PROBE_MESSAGES


def models(model: str, max_model_len: int) -> bytes:
    """The body of `/v1/models`."""
    entry = {"id": model, "object": "model", "created": 1796021585, "owned_by": "vllm", "root": model}
    more: dict[str, object] = {"parent": None, "max_model_len": max_model_len, "permission": []}
    return dumps({"object": "list", "data": [{**entry, **more}]}).encode()


def metrics(model: str, running: float, waiting: float, kv_usage: float) -> bytes:
    """The body of `/metrics`: the gauges that tell a server's load."""
    gauges = {"num_requests_running": running, "num_requests_waiting": waiting, "kv_cache_usage_perc": kv_usage}
    labels = f'{{engine="0",model_name="{model}"}}'
    lines = (f"# HELP vllm:{n} A gauge.\n# TYPE vllm:{n} gauge\nvllm:{n}{labels} {v:.1f}\n" for n, v in gauges.items())
    return "".join(lines).encode()


def probe_answer(exchange: Exchange, path: str, model: str) -> Script:
    """A real completion, streamed where asked."""
    if path.endswith("/chat/completions"):
        wire = ChatWire(model)
        if exchange.json().get("stream"):
            return sends(response(wire.stream(["Hel", "lo"], usage=True)))
        return [Send(json_response(wire.answer("ok", 1, 1)))]
    if path.endswith("/completions"):
        return [Send(json_response(CompletionWire(model).answer("ok", 1, 1)))]
    return [Send(json_response(error_body("The API does not support this", "NotFoundError", None, 404), 404))]

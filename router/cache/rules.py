"""Which requests may be answered from the cache, and what their `cache-control` header asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from router.proxy.surface import Endpoint

Requests = Literal["none", "deterministic", "all"]
_KINDS = frozenset({"chat.completions", "completions", "embeddings", "responses", "messages"})
# State on the replica's side, or an answer that is handed on between engines: each request means itself alone.
_PERSONAL = ("kv_transfer_params", "ec_transfer_params", "previous_response_id", "conversation", "background")


class Control(NamedTuple):
    """What the client's header says."""

    no_store: bool = False
    no_cache: bool = False
    max_age_s: float | None = None


NOTHING_SAID = Control()


def read_control(headers: Iterable[tuple[bytes, bytes]]) -> Control:
    """Return the directives of `cache-control`; those Bitgear does not know, and broken ones, mean nothing."""
    found = NOTHING_SAID
    for name, value in headers:
        if name != b"cache-control":
            continue
        for part in value.decode("latin-1").lower().split(","):
            directive, _, argument = part.strip().partition("=")
            if directive == "no-store":
                found = found._replace(no_store=True)
            elif directive == "no-cache":
                found = found._replace(no_cache=True)
            elif directive == "max-age" and argument.strip('" ').isdecimal():
                found = found._replace(max_age_s=float(argument.strip('" ')[:12]))
    return found


def cacheable(endpoint: Endpoint, body: Mapping[str, Any], control: Control, requests: Requests) -> bool:
    """Return whether the request may use the cache at all.

    By itself only where the same question has the same answer: temperature 0, a seed, or embeddings. Others when the
    group's configuration says so, or when the client accepts an older answer by `max-age`.
    """
    if requests == "none" or control.no_store or endpoint.name not in _KINDS:
        return False
    if not (requests == "all" or control.max_age_s or endpoint.name == "embeddings" or is_deterministic(body)):
        return False
    options = body.get("stream_options")
    if isinstance(options, Mapping) and options.keys() - {"include_usage"}:
        # Other options change the chunks themselves.
        return False
    if body.get("store") is True and endpoint.name == "responses":
        # The client may ask for it by its id later.
        return False
    return all(body.get(name) is None for name in _PERSONAL)


def is_deterministic(body: Mapping[str, Any]) -> bool:
    """Return whether the client asks for the one most likely answer, or for a repeatable draw."""
    temperature, seed = body.get("temperature"), body.get("seed")
    if isinstance(temperature, int | float) and not isinstance(temperature, bool) and temperature == 0:
        return True
    return isinstance(seed, int) and not isinstance(seed, bool)

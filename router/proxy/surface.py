"""The OpenAI (and Anthropic) paths that Bitgear knows, and how their streams speak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Dialect = Literal["openai", "responses", "anthropic"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One path: what its body must hold and how its answers look."""

    name: str
    """Bounded label for metrics."""
    dialect: Dialect = "openai"
    required: str | None = None
    """Field without which the request means nothing."""
    instead: str | None = None
    """Field that may stand in its place."""
    generates: bool = True
    """Whether answers are generated token by token: risk is estimated, usage and speed are accounted."""
    one_precision: bool = False
    """Whether answers of different precisions must not be mixed: vectors of two precisions must not meet in one index."""
    injects_usage: bool = False
    """Whether a stream tells its usage only when asked by stream_options."""
    costs: bool = True
    """Whether it may cost tokens of an API key."""


CHAT = Endpoint("chat.completions", "openai", "messages", injects_usage=True)

ENDPOINTS: dict[bytes, Endpoint] = {
    b"/v1/chat/completions": CHAT,
    b"/v1/completions": Endpoint("completions", "openai", "prompt", "prompt_embeds", injects_usage=True),
    b"/v1/responses": Endpoint("responses", "responses", "input"),
    b"/v1/messages": Endpoint("messages", "anthropic", "messages"),
    b"/v1/messages/count_tokens": Endpoint("count_tokens", "anthropic", "messages", generates=False, costs=False),
    b"/v1/embeddings": Endpoint("embeddings", "openai", "input", "messages", generates=False, one_precision=True),
    b"/tokenize": Endpoint("tokenize", generates=False, costs=False),
    b"/detokenize": Endpoint("detokenize", "openai", "tokens", generates=False, costs=False),
}
OTHER = Endpoint("other", generates=False)
ROUTE = Endpoint("route", generates=False, costs=False)
FEEDBACK = Endpoint("feedback", generates=False, costs=False)

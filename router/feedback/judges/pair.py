"""What judges see and say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

Post = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Sends JSON to a path of a server and returns its JSON. Raises OSError, UpstreamError, ValueError."""


class Pair(NamedTuple):
    """Two answers to one request."""

    request: Mapping[str, Any]
    """The request's body."""
    answer: Mapping[str, Any]
    """The choice (of a plain answer) whose quality is asked for."""
    reference: Mapping[str, Any]
    """Full precision's."""


class Verdict(NamedTuple):
    """Qualities in [0, 1]."""

    value: float
    reference: float


class Tools(NamedTuple):
    """What a judge may use."""

    embed: Post | None = None
    embedding_model: str = ""
    chat: Post | None = None
    chat_model: str = ""


Judge = Callable[[Pair], Awaitable["Verdict | None"]]


def text_of(choice: Mapping[str, Any]) -> str:
    """Return the text of a choice of a chat or a text completion."""
    message = choice.get("message")
    text = message.get("content") if isinstance(message, Mapping) else choice.get("text")
    return text if isinstance(text, str) else ""


def question_of(request: Mapping[str, Any]) -> str:
    """Return the request's last user turn, or its prompt, as text."""
    messages = request.get("messages")
    if isinstance(messages, list):
        for message in reversed(messages):
            if isinstance(message, Mapping) and message.get("role") == "user":
                content = message.get("content")
                if isinstance(content, list):
                    parts = [p.get("text") for p in content if isinstance(p, Mapping)]
                    return "\n".join(p for p in parts if isinstance(p, str))
                return content if isinstance(content, str) else ""
    prompt = request.get("prompt")
    return prompt if isinstance(prompt, str) else ""

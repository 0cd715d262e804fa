"""From a conversation to the text of a prompt, as a chat template does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from backends.simulator.errors import RequestError, validation_error
from backends.simulator.requests import Tool

# Tokens that a picture, a piece of sound or a film takes in the prompt: one placeholder each.
_PLACEHOLDER = "\ufffc"
_IMAGE_TOKENS = 256
_AUDIO_TOKENS = 128
_VIDEO_TOKENS = 1024
_MEDIA = {
    "image_url": _IMAGE_TOKENS,
    "input_image": _IMAGE_TOKENS,
    "image_pil": _IMAGE_TOKENS,
    "image_embeds": _IMAGE_TOKENS,
    "image": _IMAGE_TOKENS,
    "audio_url": _AUDIO_TOKENS,
    "input_audio": _AUDIO_TOKENS,
    "audio_embeds": _AUDIO_TOKENS,
    "video_url": _VIDEO_TOKENS,
    "video": _VIDEO_TOKENS,
}
_TEXTS = frozenset({"text", "input_text", "output_text", "refusal", "thinking"})


def _written(tool: Tool) -> str:
    try:
        return orjson.dumps(tool.model_dump()).decode()
    except TypeError as error:
        # A lone surrogate, a number that is too large.
        raise RequestError(f"tools: cannot be rendered: {error}", param="tools") from None


def render_chat(
    messages: Sequence[dict[str, Any]],
    tools: Sequence[Tool] | None = None,
    *,
    generate: bool = True,
    go_on: bool = False,
) -> str:
    """The prompt of a conversation. Raises RequestError when a message cannot be rendered.

    `generate` opens the answer behind it; `go_on` leaves the last message open instead.
    """
    if not messages:
        raise RequestError("Cannot apply chat template to an empty conversation. Provide at least one message.")
    parts: list[str] = []
    if tools:
        parts.append("\x02tools\n" + "\n".join(_written(tool) for tool in tools) + "\x03\n")
    for index, message in enumerate(messages):
        role = message.get("role")
        if not isinstance(role, str):
            kind, text = (
                ("missing", "Field required") if role is None else ("string_type", "Input should be a valid string")
            )
            shown = message if role is None else role
            raise validation_error([{"type": kind, "loc": ("messages", index, "role"), "msg": text, "input": shown}])
        parts.append(f"\x02{role}\n{content_text(message.get('content'), ('messages', index, 'content'))}")
        if message.get("tool_calls"):
            parts.append(orjson.dumps(message["tool_calls"]).decode())
        if not go_on or index < len(messages) - 1:
            parts.append("\x03\n")
    if generate:
        parts.append("\x02assistant\n")
    return "".join(parts)


def content_text(content: Any, loc: tuple[str | int, ...]) -> str:
    """A message's content as text, its media as placeholders. Raises RequestError."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise validation_error(
            [{"type": "string_type", "loc": loc, "msg": "Input should be a valid string", "input": content}]
        )
    return "\n".join(_part_text(part, (*loc, index)) for index, part in enumerate(content))


def _part_text(part: Any, loc: tuple[str | int, ...]) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise validation_error(
            [{"type": "dict_type", "loc": loc, "msg": "Input should be a valid dictionary", "input": part}]
        )
    kind = part.get("type")
    if kind in _TEXTS:
        text = part.get(kind if kind in ("refusal", "thinking") else "text")
        if not isinstance(text, str):
            raise validation_error(
                [{"type": "string_type", "loc": (*loc, "text"), "msg": "Input should be a valid string", "input": text}]
            )
        return text
    if kind in _MEDIA:
        return _PLACEHOLDER * _MEDIA[kind]
    raise RequestError(f"Unknown part type: {kind}")


__all__ = ["content_text", "render_chat"]

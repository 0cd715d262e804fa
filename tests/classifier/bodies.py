"""Request bodies as a network may send them: drawn by a seed, thousands a second, so that many shapes meet every model."""

from __future__ import annotations

import random
from typing import Any

KEYS = ("messages", "prompt", "input", "system", "instructions", "tools", "functions", "response_format", "text",
        "tool_choice", "guided_json", "structured_outputs", "output_config")  # fmt: skip
NAMES = ("role", "content", "tool_calls", "type", "name", "text", "output", "arguments", "thinking", "summary", "function",
         "format", "json_schema", "image_url")  # fmt: skip
WORDS = ("", " ", "user", "system", "developer", "assistant", "model", "function_call", "reasoning", "text", "input_image",
         "audio", "file", "json_schema", "none", "prove that 2 + 2 = 4, why?", "请证明质数有无穷多个。", "\ud800", "\x00" * 30,
         "a" * 1500, "请解释。" * 400, "```x```", "$\\frac12$", "!!!!!!!!!", "👩‍👩‍👧", "data:image/png;base64,iVBORw0", "مرحبا",
         "hi")  # fmt: skip
NUMBERS = (0, 1, -1, 2**70, 0.0, -0.5, 1e308, float("inf"), float("nan"))


def drawn(seed: int) -> dict[str, Any]:
    """Return the body of this seed."""
    source = random.Random(seed)
    body = {key: _value(source, 4) for key in source.sample(KEYS, source.randint(0, 5))}
    if source.random() < 0.4:
        body["messages"] = [_message(source) for _ in range(source.choice((1, 2, 3, 60)))]
    return body


def _message(source: random.Random) -> Any:
    """Nearly a message: every field may hold anything."""
    message = {"role": source.choice(WORDS), "content": _value(source, 2)}
    if source.random() < 0.3:
        message["tool_calls"] = [{"function": {"arguments": _value(source, 1)}}, _value(source, 1)]
    return message if source.random() < 0.9 else _value(source, 2)


def _value(source: random.Random, depth: int) -> Any:
    kind = source.randrange(10) if depth else source.randrange(5)
    if kind < 3:
        return source.choice(WORDS)
    if kind < 4:
        return source.choice(NUMBERS)
    if kind < 5:
        return source.choice((None, True, False, [], {}))
    if kind < 8:
        size = source.choice((1, 2, 3, 5, 70)) if depth < 3 else source.randint(1, 4)
        return [_value(source, depth - 1 if size < 70 else 0) for _ in range(size)]
    return {name: _value(source, depth - 1) for name in source.sample(NAMES, source.randint(1, 5))}


def turned(value: Any) -> Any:
    """Return the value with the keys of its objects in the opposite order."""
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in reversed(value)}
    return [turned(item) for item in value] if isinstance(value, list) else value

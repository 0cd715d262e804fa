"""The part of a request that a classifier reads: the whole conversation, at a bounded cost.

Bodies come from the network and are barely validated before they reach this module, so nothing here assumes a type.
Long texts are sampled (head, tail and evenly spaced pieces of the middle), always the same way; images and other media
are counted and never read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_CHARS = 1_200
"""Most characters of text that features are computed from."""

_LAST_CHARS = 600
_SYSTEM_CHARS = 240
_OTHER_CHARS = 280
_OWN_CHARS = 200
_MAX_MESSAGES = 48
_MAX_PARTS = 32
_MAX_NODES = 400
_CHARS_PER_TOKEN = 4

BASE64 = re.compile(r"base64,[A-Za-z0-9+/=_-]*")
"""Data in a text: says nothing of the request."""
_BASE64_CHARS = 40_000
"""Longer texts are not searched for it."""
_SYSTEM_ROLES = frozenset({"system", "developer"})
_MODEL_ROLES = frozenset({"assistant", "model"})
_GUIDED = ("guided_json", "guided_grammar", "guided_regex", "guided_choice", "structured_outputs", "json_schema")


@dataclass(frozen=True, slots=True)
class Conversation:
    """A bounded view of one request."""

    text: str
    """System prompt and turns, oldest first, joined by spaces; sampled when longer than `MAX_CHARS`.

    The model's own turns stand in it only where the others say little.
    """
    last: str
    """The newest turn that isn't the model's own (sampled)."""
    longest_chars: int
    """Characters of the longest turn that is neither the system's nor the model's own."""
    total_chars: int
    """Characters of all the texts seen (not only of the sample)."""
    turns: int
    """Messages, system prompt included."""
    images: int
    """Images, audio, files: parts that aren't text."""
    tools: int
    """Tools offered to the model."""
    schema_nodes: int
    """Size of the response schema and the tools' schemas: values in their JSON, up to a limit."""
    structured: bool
    """The answer must fit a schema or grammar, or may call tools."""
    sampled: bool
    """Something was left out."""


@dataclass(slots=True)
class _Collector:
    """Texts and media met in one message."""

    texts: list[str] = field(default_factory=list)
    chars: int = 0
    images: int = 0
    skipped: bool = False

    def add(self, text: str) -> None:
        self.texts.append(text)
        self.chars += len(text)


def view(request: Mapping[str, object]) -> Conversation:
    """Return the conversation in `request`, the body of any `/v1` call that carries text. Never raises on its content."""
    messages, systems = _messages(request)
    tools = request.get("tools")
    functions = request.get("functions")
    tool_count = (len(tools) if isinstance(tools, list) else 0) + (len(functions) if isinstance(functions, list) else 0)
    schemas = _schemas(request)
    nodes = _count_nodes([*schemas, tools, functions]) if schemas or tool_count else 0

    # The newest turns matter most; the first ones hold the task.
    kept = messages if len(messages) <= _MAX_MESSAGES else messages[:8] + messages[8 - _MAX_MESSAGES :]
    sampled = len(kept) < len(messages)
    system_texts, total, images = [], 0, 0
    for item in systems:
        part = _Collector()
        _read(item, part, 2)
        total += part.chars
        images += part.images
        sampled |= part.skipped
        system_texts.extend(part.texts)
    turns: list[tuple[bool, str, int]] = []
    longest = 0
    last_index = -1
    for message in kept:
        if type(message) is dict and type(text := message.get("content")) is str and "tool_calls" not in message:
            # Nearly every message is this plain; the general way below reads it the same.
            role = message.get("role")
            size = len(text)
            total += size
            if role == "system" or role == "developer":
                system_texts.append(text)
                continue
            own = role == "assistant" or role == "model"
            if not own and size:
                last_index = len(turns)
                if size > longest:
                    longest = size
            turns.append((own, text, size))
            continue
        part = _Collector()
        role = _read_message(message, part)
        total += part.chars
        images += part.images
        sampled |= part.skipped
        if role in _SYSTEM_ROLES:
            system_texts.extend(part.texts)
            continue
        own = role in _MODEL_ROLES
        if not own and part.chars:
            last_index = len(turns)
            longest = max(longest, part.chars)
        turns.append((own, " ".join(part.texts) if len(part.texts) != 1 else part.texts[0], part.chars))

    last = clip(turns[last_index][1] if last_index >= 0 else "", _LAST_CHARS)
    if total <= MAX_CHARS:
        chosen = system_texts + _lighten(turns)
    else:
        chosen = _choose(system_texts, turns, last_index, last)
        sampled = True
    return Conversation(
        text=" ".join(chosen) if len(chosen) != 1 else chosen[0],
        last=last,
        longest_chars=longest,
        total_chars=total,
        turns=len(messages) + len(systems),
        images=images,
        tools=tool_count,
        schema_nodes=nodes,
        structured=bool(schemas) or (tool_count > 0 and request.get("tool_choice") != "none"),
        sampled=sampled,
    )


def clip(text: str, limit: int) -> str:
    """Return at most about `limit` characters of `text`: its head, its tail, and four evenly spaced pieces between."""
    size = len(text)
    if size <= limit:
        return text
    if size <= _BASE64_CHARS and "base64," in text:
        text = BASE64.sub(" ", text)
        size = len(text)
        if size <= limit:
            return text
    edge = limit // 3
    piece = (limit - 2 * edge) // 4
    step = (size - 2 * edge - piece) // 4
    pieces = [text[:edge]]
    if step > 0:
        first = edge + step // 2
        pieces += [text[start : start + piece] for start in range(first, first + 4 * step, step)]
    pieces.append(text[-edge:])
    return " ".join(pieces)


def _lighten(turns: list[tuple[bool, str, int]]) -> list[str]:
    """Return the turns; the model's own only as far as the others say little.

    What is asked tells how hard it is; the answers repeat that in other words, and their form (code, lists) would hide it.
    """
    own = sum(is_own for is_own, _, _ in turns)
    if not own:
        return [text for _, text, _ in turns]
    asked = sum(chars for is_own, _, chars in turns if not is_own)
    each = max(_OWN_CHARS - asked, 0) // own
    return [clip(text, each) if is_own else text for is_own, text, _ in turns if each or not is_own]


def _choose(systems: list[str], turns: list[tuple[bool, str, int]], last_index: int, last: str) -> list[str]:
    """Fill the budget: the newest turn, the system prompt, then the other turns from the newest to the oldest."""
    system = clip(
        systems[0] if len(systems) == 1 else " ".join(clip(s, _SYSTEM_CHARS) for s in systems[:8]), _SYSTEM_CHARS
    )
    left = MAX_CHARS - len(last) - len(system)
    asked = sum(chars for is_own, _, chars in turns if not is_own)
    chosen: list[str] = []
    for index in range(len(turns) - 1, -1, -1):
        text = last if index == last_index else turns[index][1]
        if index != last_index:
            if left <= 0 or (turns[index][0] and asked >= _OWN_CHARS):
                continue
            text = clip(text, min(_OTHER_CHARS, left))
            left -= len(text)
        if text:
            chosen.append(text)
    if system:
        chosen.append(system)
    chosen.reverse()
    return chosen


def _messages(request: Mapping[str, object]) -> tuple[list[object], list[object]]:
    """The turns and the system texts that stand beside them, whatever the API."""
    systems = [request[key] for key in ("system", "instructions") if request.get(key)]
    for key in ("messages", "input", "prompt"):
        value = request.get(key)
        if value is None:
            continue
        if isinstance(value, list):
            if value and isinstance(value[0], int):
                return [value], systems
            return value, systems
        return [value], systems
    return [], systems


def _read_message(message: object, part: _Collector) -> str:
    """Read one turn; returns its role, `user` when it says none that is a string."""
    if not isinstance(message, dict):
        _read(message, part, 2)
        return "user"
    role = message.get("role")
    kind = message.get("type")
    content = message.get("content")
    if content is not None:
        _read(content, part, 3)
    elif not isinstance(role, str):
        _read(message, part, 3)
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        for call in calls[:_MAX_PARTS]:
            function = call.get("function") if isinstance(call, dict) else None
            arguments = function.get("arguments") if isinstance(function, dict) else None
            if isinstance(arguments, str):
                part.add(arguments)
    if isinstance(role, str):
        return role
    return "assistant" if kind == "function_call" or kind == "reasoning" else "user"


def _read(value: object, part: _Collector, depth: int) -> None:
    """Collect the texts of a message's content: a string, parts, or token ids."""
    if isinstance(value, str):
        part.add(value)
    elif isinstance(value, list):
        if value and type(value[0]) is int:
            # Token ids: their number says how long the text is, nothing says what it is.
            part.chars += _CHARS_PER_TOKEN * len(value)
            part.skipped = True
            return
        items = value
        if len(value) > 2 * _MAX_PARTS:
            items = value[:_MAX_PARTS] + value[-_MAX_PARTS:]
            part.skipped = True
        for item in items:
            if isinstance(item, str):
                part.add(item)
            elif depth > 0 and isinstance(item, (dict, list)):
                _read(item, part, depth - 1)
    elif isinstance(value, dict):
        _read_part(value, part, depth)


def _read_part(value: dict[str, object], part: _Collector, depth: int) -> None:
    for key in ("text", "output", "arguments", "thinking"):
        text = value.get(key)
        if isinstance(text, str):
            part.add(text)
            return
    kind = value.get("type")
    if isinstance(kind, str) and (
        "image" in kind or "audio" in kind or "video" in kind or kind in ("file", "document")
    ):
        part.images += 1
        return
    for key in ("content", "output", "summary"):
        inner = value.get(key)
        if inner is not None and depth > 0:
            _read(inner, part, depth - 1)
            return


def _schemas(request: Mapping[str, object]) -> list[object]:
    """The formats that the answer must fit."""
    found = [request[key] for key in _GUIDED if request.get(key)]
    formats = [request.get("response_format")]
    for key in ("text", "output_config"):
        holder = request.get(key)
        if isinstance(holder, dict):
            formats.append(holder.get("format"))
    for item in formats:
        if isinstance(item, dict) and item.get("type") not in (None, "text"):
            found.append(item)
    return found


def _count_nodes(values: list[object]) -> int:
    """Values in nested JSON, at most `_MAX_NODES`: a count, so that the order of keys does not matter."""
    stack = [value for value in values if value is not None]
    count = 0
    while stack:
        value = stack.pop()
        count += 1
        if count >= _MAX_NODES:
            return _MAX_NODES
        if isinstance(value, dict):
            room = _MAX_NODES - len(stack)
            if len(value) > room:
                return _MAX_NODES
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value[:_MAX_NODES])
    return count

"""Refusing requests that no replica could answer, with the field's name, before a replica's time is spent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.proxy.errors import bad_field
from router.proxy.json_body import Body, json_type
from router.proxy.surface import Endpoint

_NUMBER = (int, float)
_FIELDS: dict[str, tuple[tuple[type, ...], str]] = {
    "stream": ((bool,), "a boolean"),
    "stream_options": ((dict,), "an object"),
    "max_tokens": ((int,), "an integer"),
    "max_completion_tokens": ((int,), "an integer"),
    "max_output_tokens": ((int,), "an integer"),
    "n": ((int,), "an integer"),
    "seed": ((int,), "an integer"),
    "temperature": (_NUMBER, "a number"),
    "top_p": (_NUMBER, "a number"),
    "presence_penalty": (_NUMBER, "a number"),
    "frequency_penalty": (_NUMBER, "a number"),
    "stop": ((str, list), "a string or an array of strings"),
    "tools": ((list,), "an array"),
    "response_format": ((dict,), "an object"),
    "logit_bias": ((dict,), "an object"),
    "user": ((str,), "a string"),
}


def validate(body: Body, endpoint: Endpoint) -> None:
    """Raise ApiError 400 naming the first field whose type is wrong or that is missing."""
    for name, value in body.items():
        expected = _FIELDS.get(name)
        if expected is None or value is None:
            continue
        types, words = expected
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise bad_field(name, f"expected {words}, found {json_type(value)}", "invalid_type")
    if body.get("stream_options") is not None and not body.get("stream"):
        raise bad_field("stream_options", "only allowed when stream is true", "invalid_value")
    field = endpoint.required
    if field is None:
        return
    if body.get(field) is None and endpoint.instead is not None and body.get(endpoint.instead) is not None:
        field = endpoint.instead
    if body.get(field) is None:
        raise bad_field(field, "field required", "missing_required_parameter")
    if field == "messages":
        _messages(body["messages"])
    elif field in ("prompt", "input"):
        _prompt(field, body[field])


def _messages(messages: object) -> None:
    if not isinstance(messages, list):
        raise bad_field("messages", f"expected an array, found {json_type(messages)}", "invalid_type")
    if not messages:
        raise bad_field("messages", "expected at least one message, found an empty array", "invalid_value")
    for i, message in enumerate(messages):
        if not isinstance(message, dict):
            raise bad_field(f"messages[{i}]", f"expected an object, found {json_type(message)}", "invalid_type")
        role = message.get("role")
        if not isinstance(role, str):
            raise bad_field(f"messages[{i}].role", f"expected a string, found {json_type(role)}", "invalid_type")
        content = message.get("content")
        if content is not None and not isinstance(content, str | list):
            raise bad_field(
                f"messages[{i}].content",
                f"expected a string or an array of parts, found {json_type(content)}",
                "invalid_type",
            )


def _prompt(name: str, prompt: object) -> None:
    if not isinstance(prompt, str | list):
        raise bad_field(name, f"expected a string or an array, found {json_type(prompt)}", "invalid_type")
    if isinstance(prompt, list) and not prompt:
        raise bad_field(name, "expected at least one item, found an empty array", "invalid_value")


def output_limit(body: Mapping[str, Any]) -> int | None:
    """Return the client's limit on the answer's tokens, whatever its name on this path; None without one."""
    for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
        value = body.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def text_units(body: Mapping[str, Any]) -> tuple[float, int]:
    """Return (size, lower bound) of the prompt in tokens, as far as they can be told without a tokenizer.

    Size takes four ASCII characters, or one of any other text, for a token: right within a factor that each group
    learns from the usage its variants report. The lower bound is far below what any usual tokenizer makes of it; of
    several prompts in one request it is the longest one's. Images and other media do not count.
    """
    batch = _batch(body)
    if batch is not None:
        sizes = [_size([prompt]) for prompt in batch]
        units = sum(size for size, _ in sizes) + _size([body.get("system"), body.get("instructions")])[0]
        least = max(bound for _, bound in sizes)
    else:
        parts = [body.get(name) for name in ("messages", "prompt", "input", "system", "instructions")]
        units, least = _size(parts)
    tools = body.get("tools")
    if isinstance(tools, list):
        units += 60.0 * len(tools)
    return units, 0 if body.get("truncate_prompt_tokens") is not None else least


def sequences(body: Mapping[str, Any]) -> int:
    """Return how many answers one request generates: choices times prompts."""
    n = body.get("n")
    choices = n if isinstance(n, int) and n > 1 else 1
    return choices * len(_batch(body) or (None,))


def _batch(body: Mapping[str, Any]) -> list[Any] | None:
    # A list of texts, or of lists of token ids, is several prompts; a list of token ids or of messages is one.
    for name in ("prompt", "input"):
        value = body.get(name)
        if isinstance(value, list) and value and isinstance(value[0], str | list):
            return value
    return None


def _size(parts: list[Any]) -> tuple[float, int]:
    units, characters, ids = 0.0, 0, 0
    todo = list(parts)
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            characters += len(item)
            units += len(item) / 4 if item.isascii() else len(item) * 0.7
        elif isinstance(item, list):
            if item and isinstance(item[0], int):
                ids += len(item)
            else:
                todo.extend(item)
        elif isinstance(item, dict):
            todo.append(item.get("content"))
            todo.append(item.get("text"))
    return units + ids, characters // 16 + ids

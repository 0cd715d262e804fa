"""The prompts file: JSON lines (gzipped or not), one prompt each, checked before anything is sent."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TASKS = ("open", "number", "choice", "text", "code", "json")
"""Kinds of task. `open` has no checkable answer."""
_CHECKED = ("number", "choice", "text")
_FIELDS = {"id", "prompt", "messages", "answer", "accepted", "task", "language", "max_tokens", "schema", "tools"}
_ROLES = ("system", "developer", "user", "assistant", "tool")


class PromptError(ValueError):
    """A prompts file that cannot be used; the message names file, line and field."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt."""

    key: str
    """SHA-256 (32 hexadecimal digits) of what is sent: equal prompts share it."""
    messages: tuple[Mapping[str, Any], ...]
    accepted: tuple[str, ...]
    """Answers that count as right; empty: not checkable."""
    task: str
    language: str | None
    max_tokens: int | None
    """Longest answer, tokens; None: that of the run."""
    schema: Mapping[str, Any] | None
    """JSON schema that the answer must fit (task `json`)."""
    tools: tuple[Mapping[str, Any], ...]

    def request(self) -> dict[str, Any]:
        """Return the body of a chat request, without model and sampling: what the classifier reads."""
        body: dict[str, Any] = {"messages": [dict(m) for m in self.messages]}
        if self.tools:
            body["tools"] = [dict(t) for t in self.tools]
        if self.schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": dict(self.schema)},
            }
        return body


def read_prompts(path: Path) -> list[Prompt]:
    """Return the prompts of a file in order, each once. Raises `PromptError`."""
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as lines:
            found = [parse(line, f"{path}:{n}") for n, line in enumerate(lines, 1) if line.strip()]
    except (OSError, EOFError) as error:
        raise PromptError(f"{path}: cannot be read: {error}") from None
    except UnicodeDecodeError as error:
        raise PromptError(f"{path}: not UTF-8 at byte {error.start}") from None
    if not found:
        raise PromptError(f"{path}: no prompts")
    return list({prompt.key: prompt for prompt in found}.values())


def parse(line: str, where: str) -> Prompt:
    """Return the prompt in one line. Raises `PromptError`, which begins with `where`."""
    try:
        row = json.loads(line)
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise PromptError(f"{where}: half a character (an escape of a lone surrogate)") from None
    except (ValueError, RecursionError) as error:
        raise PromptError(f"{where}: not JSON: {error}") from None
    if not isinstance(row, dict):
        raise PromptError(f"{where}: expected an object, found {type(row).__name__}")
    unknown = sorted(set(row) - _FIELDS)
    if unknown:
        raise PromptError(f"{where}: {unknown[0]}: unknown field; known: {', '.join(sorted(_FIELDS))}")
    messages = _messages(row, where)
    accepted = _accepted(row, where)
    schema = row.get("schema")
    if schema is not None and not isinstance(schema, dict):
        raise PromptError(f"{where}: schema: expected an object, found {type(schema).__name__}")
    task = row.get("task") or ("json" if schema is not None else "text" if accepted else "open")
    if task not in TASKS:
        raise PromptError(f"{where}: task: found {task!r:.40}, expected one of {', '.join(TASKS)}")
    if task in _CHECKED and not accepted and task != "choice":
        raise PromptError(f"{where}: answer: missing; a task of kind {task} is checked against it")
    language = row.get("language")
    if language is not None and not isinstance(language, str):
        raise PromptError(f"{where}: language: expected a string, found {type(language).__name__}")
    longest = row.get("max_tokens")
    if longest is not None and (not isinstance(longest, int) or isinstance(longest, bool) or longest < 1):
        raise PromptError(f"{where}: max_tokens: expected a whole number above 0, found {longest!r:.40}")
    tools = row.get("tools", [])
    if not isinstance(tools, list) or not all(isinstance(t, dict) for t in tools):
        raise PromptError(f"{where}: tools: expected a list of objects")
    sent = json.dumps([messages, longest, schema, tools], sort_keys=True, ensure_ascii=True)
    return Prompt(
        key=hashlib.sha256(sent.encode("ascii")).hexdigest()[:32],
        messages=tuple(messages),
        accepted=accepted,
        task=task,
        language=language,
        max_tokens=longest,
        schema=schema,
        tools=tuple(tools),
    )


def _messages(row: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    if ("prompt" in row) == ("messages" in row):
        raise PromptError(f"{where}: prompt: expected either `prompt` or `messages`")
    if "prompt" in row:
        if not isinstance(row["prompt"], str) or not row["prompt"].strip():
            raise PromptError(f"{where}: prompt: expected a text that isn't empty")
        return [{"role": "user", "content": row["prompt"]}]
    messages = row["messages"]
    if not isinstance(messages, list) or not messages:
        raise PromptError(f"{where}: messages: expected a list that isn't empty")
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            raise PromptError(f"{where}: messages[{number}].role: expected one of {', '.join(_ROLES)}")
        if not isinstance(message.get("content"), (str, list)):
            raise PromptError(f"{where}: messages[{number}].content: expected a text or a list of parts")
    return messages


def _accepted(row: Mapping[str, Any], where: str) -> tuple[str, ...]:
    if "answer" in row and "accepted" in row:
        raise PromptError(f"{where}: accepted: expected either `answer` or `accepted`")
    name = "accepted" if "accepted" in row else "answer"
    value = row.get(name)
    if value is None:
        return ()
    listed = value if isinstance(value, list) else [value]
    # Numbers may be written as such.
    texts = [str(v) if isinstance(v, (int, float)) and not isinstance(v, bool) else v for v in listed]
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise PromptError(f"{where}: {name}: expected a text, a number, or a list of them that isn't empty")
    return tuple(texts)

"""Answers of a stated form: JSON against its schema, arguments of tool calls, Python that parses.

It tells where the request asks for such a form, or full precision's answer has it; each answer counts by its own
validity.
"""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Mapping
from typing import Any

import orjson

from router.feedback.judges.pair import Judge, Pair, Tools, Verdict, text_of
from router.feedback.judges.schema import TooLarge, conforms

_CODE = re.compile(r"```(?:python|py)[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)
_LONGEST_CODE = 32 * 1024


def make(_: Tools) -> Judge:
    """Return the judge."""

    async def judge(pair: Pair) -> Verdict | None:
        try:
            return await told(pair)
        except TooLarge:
            # By a schema that takes so long nobody can tell beside the requests that are served here.
            return None

    async def told(pair: Pair) -> Verdict | None:
        form = pair.request.get("response_format")
        kind = form.get("type") if isinstance(form, Mapping) else None
        if kind in ("json_object", "json_schema"):
            schema = _schema(form) if kind == "json_schema" else {"type": "object"}
            return Verdict(_json(text_of(pair.answer), schema), _json(text_of(pair.reference), schema))
        if _calls(pair.reference):
            tools = _tools(pair.request)
            return Verdict(_calls_valid(pair.answer, tools), _calls_valid(pair.reference, tools))
        if _CODE.search(text_of(pair.reference)):
            # Parsing holds the interpreter for some milliseconds: not on the loop.
            return await asyncio.to_thread(_code, text_of(pair.answer), text_of(pair.reference))
        return None

    return judge


def _schema(form: Any) -> Any:
    wrapped = form.get("json_schema")
    return wrapped.get("schema", True) if isinstance(wrapped, Mapping) else True


def _json(text: str, schema: Any) -> float:
    try:
        return float(conforms(orjson.loads(text), schema))
    except orjson.JSONDecodeError:
        return 0.0


def _calls(choice: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    message = choice.get("message")
    calls = message.get("tool_calls") if isinstance(message, Mapping) else None
    return [c for c in calls if isinstance(c, Mapping)] if isinstance(calls, list) else []


def _tools(request: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    tools = request.get("tools")
    for tool in tools if isinstance(tools, list) else []:
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            found[function["name"]] = function.get("parameters", True)
    return found


def _calls_valid(choice: Mapping[str, Any], tools: Mapping[str, Any]) -> float:
    calls = _calls(choice)
    for call in calls:
        function = call.get("function")
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name, str) or name not in tools:
            return 0.0
        if not _json(str(function.get("arguments") or "{}"), tools[name]):
            return 0.0
    return float(bool(calls))


def _code(answer: str, reference: str) -> Verdict:
    return Verdict(_parses(answer), _parses(reference))


def _parses(text: str) -> float:
    code = "\n".join(_CODE.findall(text))
    if not code.strip() or len(code) > _LONGEST_CODE:
        return 0.0
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0.0
    return 1.0

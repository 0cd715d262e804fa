"""Which form an answer takes: prose, JSON of a schema, one of several texts, or a call of a function."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from backends.simulator import text, tokens
from backends.simulator.answers import Answer, Rules, make, make_call
from backends.simulator.core import Core
from backends.simulator.errors import RequestError
from backends.simulator.pattern import UnsupportedPatternError, example
from backends.simulator.requests import Function, Sampling
from backends.simulator.schema import UnsupportedSchemaError, instance


@dataclass(frozen=True)
class Ask:
    """What is asked for."""

    prompt: str
    seed: int | None = None
    n: int = 1
    functions: Sequence[Function] = ()
    choice: str = "none"
    """none, auto, required, or `=` and the name of the function to call."""
    form: dict[str, Any] | None = None
    """Constraint on the text, as vLLM's `structured_outputs`: json, json_object, choice or regex."""


def choice_of(tool_choice: str | dict[str, Any] | None, functions: Sequence[Function], *, answered: bool) -> str:
    """`Ask.choice`; `answered`: the last message is a function's result, after which `auto` calls none."""
    if isinstance(tool_choice, dict):
        named = tool_choice.get("function", tool_choice)
        return "=" + str(named.get("name"))
    if not functions or tool_choice == "none":
        return "none"
    if tool_choice == "required":
        return "required"
    return "none" if answered else "auto"


def form_of(request: Sampling) -> dict[str, Any] | None:
    """`Ask.form` of `structured_outputs` or `response_format`."""
    if request.structured_outputs is not None:
        return {key: value for key, value in request.structured_outputs.items() if value is not None}
    return form_of_format(request.response_format)


def form_of_format(response_format: dict[str, Any] | None) -> dict[str, Any] | None:
    """`Ask.form` of a `response_format`. Raises RequestError for an unknown type."""
    kind = None if response_format is None else response_format.get("type")
    if response_format is None or kind in ("text", "structural_tag"):
        return None
    if kind == "json_object":
        return {"json_object": True}
    if kind == "json_schema":
        inner = response_format.get("json_schema", response_format)
        return {"json": inner.get("schema", {})}
    raise RequestError(f"Unsupported response_format type: {kind}", param="response_format")


def answers(core: Core, ask: Ask, rules: Rules) -> list[Answer]:
    """The `n` answers. Raises RequestError if the form cannot be met."""
    return [_answer(core, ask, rules, index) for index in range(ask.n)]


def _answer(core: Core, ask: Ask, rules: Rules, index: int) -> Answer:
    seed = text.seed_of(core.settings.seed, core.precision, ask.prompt, ask.seed, index)
    function = _called(ask, seed)
    if function is not None:
        arguments = _text(_json(function.parameters or {"type": "object"}))
        tool_id = f"chatcmpl-tool-{uuid4().hex[:16]}"
        return make_call(function.name, arguments, tool_id, rules, seed)
    if ask.form:
        return make(tokens.pieces(_text(_constrained(core, ask.form))), None, rules, seed)
    source = text.answer(seed, core.precision, chinese=text.is_chinese(ask.prompt))
    return make(source, text.natural_length(seed, core.settings.mean_output_tokens), rules, seed)


def _called(ask: Ask, seed: int) -> Function | None:
    rng = random.Random(seed ^ 0xCA11)
    if ask.choice == "none" or not ask.functions:
        return None
    if ask.choice.startswith("="):
        return next((function for function in ask.functions if function.name == ask.choice[1:]), None)
    if ask.choice == "auto" and rng.random() < 0.5:
        return None
    return rng.choice(ask.functions)


def _text(made: str) -> str:
    """What was made, which a schema or a list of choices may have given half a character."""
    try:
        made.encode()
    except UnicodeEncodeError:
        raise RequestError("structured_outputs: accepts a text with a lone surrogate alone") from None
    return made


def _constrained(core: Core, form: dict[str, Any]) -> str:
    if "json" in form:
        return _json(_schema(form["json"]))
    if form.get("json_object"):
        return json.dumps({"simulated": core.precision})
    if form.get("choice") and isinstance(form["choice"], list):
        return str(form["choice"][0])
    if isinstance(form.get("regex"), str):
        try:
            return example(form["regex"])
        except UnsupportedPatternError as error:
            raise RequestError(str(error)) from None
    raise RequestError(f"structured_outputs: the simulator cannot follow {', '.join(form)}")


def _schema(told: Any) -> Any:
    try:
        return json.loads(told) if isinstance(told, str) else told
    except (ValueError, RecursionError) as error:
        raise RequestError(f"Invalid JSON schema: {error}") from None


def _json(schema: Any) -> str:
    try:
        return json.dumps(instance(schema), ensure_ascii=False)
    except UnsupportedSchemaError as error:
        raise RequestError(str(error)) from None


__all__ = ["Ask", "answers", "choice_of", "form_of", "form_of_format"]

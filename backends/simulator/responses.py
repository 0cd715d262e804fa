"""`/v1/responses`: plain and as a stream of events."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

import orjson
from pydantic import Field

from backends.simulator import tokens
from backends.simulator.answers import Answer, logprobs
from backends.simulator.core import Core
from backends.simulator.delivery import Choice, Delivery
from backends.simulator.errors import RequestError
from backends.simulator.faults import Fault
from backends.simulator.forms import Ask, answers, choice_of, form_of_format
from backends.simulator.http import Exchange
from backends.simulator.prompts import render_chat
from backends.simulator.requests import Base, Function, Sampling, Tool, load, parse
from backends.simulator.runner import Runner


class ResponsesRequest(Base):
    """`/v1/responses`."""

    input: str | list[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] | None = None
    parallel_tool_calls: bool | None = True
    previous_response_id: str | None = None
    stream: bool | None = False
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = 0
    include: list[str] | None = None
    text: dict[str, Any] | None = None
    tools: list[dict[str, Any]] = Field(default_factory=list)
    tool_choice: str | dict[str, Any] = "auto"
    user: str | None = None
    seed: int | None = None
    ignore_eos: bool = False


def serve(core: Core, exchange: Exchange) -> None:
    """Answer one request. Raises RequestError."""
    request = parse(ResponsesRequest, load(exchange.body))
    model = core.check_model(request.model)
    if request.previous_response_id is not None:
        raise RequestError(
            f"Response with id '{request.previous_response_id}' not found.", status=404, kind="invalid_request_error",
            param="response_id",
        )  # fmt: skip
    functions = [Function.model_validate(tool) for tool in request.tools if tool.get("type") == "function"]
    prompt = render_chat(_conversation(request), [Tool(function=function) for function in functions])
    prompt_tokens = tokens.count(prompt)
    sampling = Sampling.model_validate(
        {"temperature": request.temperature, "top_p": request.top_p, "ignore_eos": request.ignore_eos}
    )
    rules = core.rules(sampling, prompt_tokens, request.max_output_tokens, "max_output_tokens")
    answered = (
        isinstance(request.input, list)
        and bool(request.input)
        and request.input[-1].get("type") == "function_call_output"
    )
    choice = choice_of(request.tool_choice, functions, answered=answered)
    form = form_of_format((request.text or {}).get("format"))
    made = answers(core, Ask(prompt, request.seed, 1, functions, choice, form), rules)
    kind = ResponsesStream if request.stream else ResponsesPlain
    delivery = kind(
        exchange,
        core.runner,
        core.fault(exchange),
        request=request,
        model=model,
        max_tokens=rules.max_tokens,
        request_id=exchange.headers.get("x-request-id") or uuid4().hex[:16],
    )
    core.begin(delivery, made, [prompt_tokens], max_tokens=rules.max_tokens)


def _complete(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool as the answer repeats it, with every field."""
    if tool.get("type") != "function":
        return tool
    fields = ("allowed_callers", "async", "defer_loading", "description", "output_schema")
    named = {"name": tool.get("name"), "parameters": tool.get("parameters"), "strict": tool.get("strict")}
    return {**named, "type": "function", **{field: tool.get(field) for field in fields}}


def _complete_text(text: dict[str, Any] | None) -> dict[str, Any] | None:
    """`text` as the answer repeats it, with every field."""
    if text is None:
        return None
    form = text.get("format")
    if isinstance(form, dict) and form.get("type") == "json_schema":
        form = {field: form.get(field) for field in ("name", "schema", "type", "description", "strict")}
    return {"format": form, "verbosity": text.get("verbosity")}


def _conversation(request: ResponsesRequest) -> list[dict[str, Any]]:
    """As chat messages."""
    messages: list[dict[str, Any]] = []
    if request.instructions:
        messages.append({"role": "system", "content": request.instructions})
    if isinstance(request.input, str):
        return [*messages, {"role": "user", "content": request.input}]
    for item in request.input:
        kind = item.get("type", "message")
        if kind == "function_call":
            messages.append({"role": "assistant", "content": f"{item.get('name')}({item.get('arguments')})"})
        elif kind == "function_call_output":
            messages.append({"role": "tool", "content": item.get("output")})
        elif kind == "message":
            messages.append(item)
    return messages


class ResponsesDelivery(Delivery):
    """What plain and streamed answers share."""

    def __init__(
        self,
        exchange: Exchange,
        runner: Runner,
        fault: Fault | None,
        *,
        request: ResponsesRequest,
        model: str,
        max_tokens: int,
        request_id: str,
    ) -> None:
        super().__init__(exchange, runner, fault)
        self.request = request
        self.model = model
        self.max_tokens = max_tokens
        self.id = f"resp_{request_id}"
        self.created = int(time.time())
        self.item_id = ""
        self.call_id = ""

    @property
    def answer(self) -> Answer:
        """The only one."""
        return self.choices[0].answer

    def name_item(self) -> None:
        """Give the output item its ids."""
        self.item_id = f"{'msg' if self.answer.tool is None else 'fc'}_{uuid4().hex[:16]}"
        self.call_id = self.answer.tool_id

    def item(self, status: str, text: str) -> dict[str, Any]:
        """The output item, with what is there of its text."""
        if self.answer.tool is not None:
            return {
                "arguments": text,
                "call_id": self.call_id,
                "name": self.answer.tool,
                "type": "function_call",
                "id": self.item_id,
                "async": None,
                "caller": None,
                "namespace": None,
                "status": status,
            }
        content = [] if status == "in_progress" else [self.part(text)]
        return {
            "id": self.item_id,
            "content": content,
            "role": "assistant",
            "status": status,
            "type": "message",
            "phase": None,
        }

    def part(self, text: str) -> dict[str, Any]:
        """The text as a part of a message."""
        scores = self.scores(0, len(self.answer.raw)) if text else None
        return {"annotations": [], "text": text, "type": "output_text", "logprobs": scores}

    def scores(self, start: int, end: int) -> list[dict[str, Any]] | None:
        """Log-probabilities of tokens `start` to `end`, if asked for."""
        request, answer = self.request, self.answer
        if "message.output_text.logprobs" not in (request.include or ()):
            return None
        result = []
        for position in range(start, end):
            own, ranked = logprobs(answer.logprob_seed, position, answer.raw[position], request.top_logprobs or 0)
            result.append(
                {
                    "token": own.token,
                    "bytes": list(own.token.encode()),
                    "logprob": own.logprob,
                    "top_logprobs": [
                        {"token": one.token, "bytes": list(one.token.encode()), "logprob": one.logprob}
                        for one in ranked
                    ],
                }
            )
        return result

    def response(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        """The whole object."""
        request = self.request
        return {
            "id": self.id,
            "created_at": self.created,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": request.instructions,
            "metadata": request.metadata,
            "model": self.model,
            "object": "response",
            "output": output,
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "temperature": 1.0 if request.temperature is None else request.temperature,
            "tool_choice": request.tool_choice if request.tools else "none",
            "tools": [_complete(tool) for tool in request.tools],
            "top_p": 1.0 if request.top_p is None else request.top_p,
            "background": False,
            "max_output_tokens": self.max_tokens,
            "max_tool_calls": None,
            "previous_response_id": None,
            "prompt": None,
            "reasoning": None,
            "service_tier": "auto",
            "status": status,
            "text": _complete_text(request.text),
            "top_logprobs": request.top_logprobs if request.include else None,
            "truncation": "disabled",
            "usage": None if status == "in_progress" else self._usage(),
            "user": request.user,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "input_messages": None,
            "output_messages": None,
        }

    @property
    def status(self) -> str:
        """How it ended."""
        return "incomplete" if self.answer.finish_reason == "length" else "completed"

    def _usage(self) -> dict[str, Any]:
        return {
            "input_tokens": self.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": 0,
                "cache_write_tokens": 0,
                "input_tokens_per_turn": [],
                "cached_tokens_per_turn": [],
            },
            "output_tokens": self.completion_tokens,
            "output_tokens_details": {
                "reasoning_tokens": 0,
                "tool_output_tokens": 0,
                "output_tokens_per_turn": [],
                "tool_output_tokens_per_turn": [],
            },
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }


class ResponsesPlain(ResponsesDelivery):
    """One JSON object, when everything is there."""

    def done(self) -> None:
        """Send it."""
        self.name_item()
        output = [self.item("completed", self.answer.text)]
        self.exchange.send(200, orjson.dumps(self.response(self.status, output)))


class ResponsesStream(ResponsesDelivery):
    """Several events, one of them per token."""

    stream = True

    def opened(self) -> None:
        """The response exists at once."""
        self._sequence = 0
        self._started = False
        self.exchange.start()
        if self.fault is None or self.fault.kind == "slow":
            self._begin()

    def first(self) -> None:
        """The first token is there."""
        if self._sequence == 0:
            self._begin()

    def piece(self, choice: Choice, position: int, last: bool) -> None:
        """One delta."""
        answer = self.answer
        text = answer.visible[position]
        if not text and not (answer.tool is not None and position == answer.tool_at):
            return
        if not self._started:
            self._started = True
            self.name_item()
            self._event("response.output_item.added", {"item": self.item("in_progress", ""), "output_index": 0})
            if self.answer.tool is None:
                part = {"annotations": [], "text": "", "type": "output_text", "logprobs": []}
                self._event("response.content_part.added", {**self._where(), "part": part})
        if not text:
            return
        if self.answer.tool is None:
            scores = self.scores(position, position + 1) or []
            where = {"content_index": 0, "delta": text, "item_id": self.item_id, "logprobs": scores, "output_index": 0}
            self._event("response.output_text.delta", where)
        else:
            where = {"delta": text, "item_id": self.item_id, "output_index": 0}
            self._event("response.function_call_arguments.delta", where)

    def done(self) -> None:
        """Everything that was opened is closed."""
        output: list[dict[str, Any]] = []
        if self._started:
            text = self.answer.text
            if self.answer.tool is None:
                where = {"content_index": 0, "item_id": self.item_id, "logprobs": [], "output_index": 0}
                self._event("response.output_text.done", {**where, "text": text})
                self._event("response.content_part.done", {**self._where(), "part": self.part(text)})
            else:
                done = {"arguments": text, "item_id": self.item_id, "output_index": 0}
                self._event("response.function_call_arguments.done", done)
            item = self.item("completed", text)
            self._event("response.output_item.done", {"item": item, "output_index": 0})
            output.append(item)
        self._event("response.completed", {"response": self.response(self.status, output)})
        self.exchange.end()

    def fail(self, error: RequestError) -> None:
        """An error event."""
        self._event("error", {"code": error.kind, "message": error.message, "param": None})
        self.exchange.end()

    def _begin(self) -> None:
        response = self.response("in_progress", [])
        self._event("response.created", {"response": response})
        self._event("response.in_progress", {"response": response})

    def _where(self) -> dict[str, Any]:
        return {"content_index": 0, "item_id": self.item_id, "output_index": 0}

    def _event(self, name: str, content: dict[str, Any]) -> None:
        # OpenAI's types name their fields in this order
        body = {**dict(sorted([*content.items(), ("sequence_number", self._sequence)])), "type": name}
        if name == "response.function_call_arguments.done":
            body["name"] = self.answer.tool
        self._sequence += 1
        self.exchange.write(b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(body)))


__all__ = ["ResponsesPlain", "ResponsesRequest", "ResponsesStream", "serve"]

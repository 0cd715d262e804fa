"""`/v1/messages`: Anthropic's format, as vLLM speaks it."""

from __future__ import annotations

from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict

from backends.simulator import tokens
from backends.simulator.answers import Answer
from backends.simulator.core import Core
from backends.simulator.delivery import Choice, Delivery
from backends.simulator.errors import RequestError
from backends.simulator.faults import Fault
from backends.simulator.forms import Ask, answers, choice_of
from backends.simulator.http import Exchange
from backends.simulator.prompts import render_chat
from backends.simulator.requests import Function, Sampling, Tool, load, parse
from backends.simulator.runner import Runner


class MessagesTool(BaseModel):
    """A function that the model may call."""

    model_config = ConfigDict(extra="allow")
    name: str
    input_schema: dict[str, Any]


class MessagesChoice(BaseModel):
    """`tool_choice`."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None


class CountRequest(BaseModel):
    """`/v1/messages/count_tokens`, and what `/v1/messages` adds to."""

    model_config = ConfigDict(extra="allow")
    model: str
    messages: list[dict[str, Any]]
    system: str | list[dict[str, Any]] | None = None
    tools: list[MessagesTool] | None = None
    tool_choice: MessagesChoice | None = None


class MessagesRequest(CountRequest):
    """`/v1/messages`."""

    max_tokens: int
    stop_sequences: list[str] | None = None
    stream: bool | None = False
    temperature: float | None = None
    top_p: float | None = None


def serve(core: Core, exchange: Exchange) -> None:
    """Answer one request. Raises RequestError."""
    request = parse(MessagesRequest, load(exchange.body))
    model = core.check_model(request.model)
    prompt, functions = _prompt(request)
    prompt_tokens = tokens.count(prompt)
    sampling = Sampling.model_validate(
        {"stop": request.stop_sequences, "temperature": request.temperature, "top_p": request.top_p}
    )
    rules = core.rules(sampling, prompt_tokens, request.max_tokens)
    ask = Ask(prompt, functions=functions, choice=_choice(request, functions))
    made = answers(core, ask, rules)
    kind = MessagesStream if request.stream else MessagesPlain
    delivery = kind(exchange, core.runner, core.fault(exchange), model=model, request_id=core.request_id(exchange))
    core.begin(delivery, made, [prompt_tokens], max_tokens=rules.max_tokens)


def count(core: Core, exchange: Exchange) -> None:
    """`/v1/messages/count_tokens`. Raises RequestError."""
    request = parse(CountRequest, load(exchange.body))
    core.check_model(request.model)
    total = tokens.count(_prompt(request)[0])
    exchange.send(200, orjson.dumps({"input_tokens": total, "context_management": {"original_input_tokens": total}}))


def error_body(error: RequestError) -> bytes:
    """An error in Anthropic's shape."""
    return orjson.dumps({"type": "error", "error": {"type": error.kind, "message": error.message}})


def _prompt(request: CountRequest) -> tuple[str, list[Function]]:
    functions = [Function(name=tool.name, parameters=tool.input_schema) for tool in request.tools or ()]
    conversation: list[dict[str, Any]] = []
    if request.system:
        conversation.append({"role": "system", "content": request.system})
    if not request.messages:
        raise RequestError("Cannot apply chat template to an empty conversation. Provide at least one message.")
    conversation += [{"role": item.get("role"), "content": _content(item.get("content"))} for item in request.messages]
    return render_chat(conversation, [Tool(function=function) for function in functions]), functions


def _content(content: Any) -> Any:
    """Blocks that chat has no part for become text."""
    if not isinstance(content, list):
        return content
    return [_part(block) if isinstance(block, dict) else block for block in content]


def _part(block: dict[str, Any]) -> dict[str, Any]:
    kind = block.get("type")
    if kind == "tool_use":
        return {"type": "text", "text": orjson.dumps(block.get("input")).decode()}
    if kind == "tool_result":
        inner = block.get("content")
        return {"type": "text", "text": inner if isinstance(inner, str) else orjson.dumps(inner).decode()}
    return block


def _choice(request: MessagesRequest, functions: list[Function]) -> str:
    last = request.messages[-1].get("content")
    answered = isinstance(last, list) and any(
        isinstance(block, dict) and block.get("type") == "tool_result" for block in last
    )
    asked = request.tool_choice
    if asked is None or asked.type == "auto":
        return choice_of("auto", functions, answered=answered)
    if asked.type == "tool":
        if all(function.name != asked.name for function in functions):
            raise RequestError("The tool specified in `tool_choice` does not match any of the specified `tools`")
        return choice_of({"name": asked.name}, functions, answered=answered)
    return choice_of("required" if asked.type == "any" else "none", functions, answered=answered)


def _ending(answer: Answer) -> tuple[str, str | None]:
    """Anthropic's `stop_reason` and `stop_sequence`."""
    if answer.finish_reason == "length":
        return "max_tokens", None
    if isinstance(answer.stop_reason, str):
        return "stop_sequence", answer.stop_reason
    return ("tool_use" if answer.tool is not None else "end_turn"), None


class MessagesDelivery(Delivery):
    """What plain and streamed answers share."""

    def __init__(self, exchange: Exchange, runner: Runner, fault: Fault | None, *, model: str, request_id: str) -> None:
        super().__init__(exchange, runner, fault)
        self.model = model
        self.id = f"chatcmpl-{request_id}"

    @property
    def usage(self) -> dict[str, int]:
        """Tokens so far."""
        return {"input_tokens": self.prompt_tokens, "output_tokens": self.completion_tokens}


class MessagesPlain(MessagesDelivery):
    """One JSON object, when everything is there."""

    def done(self) -> None:
        """Send it."""
        answer = self.choices[0].answer
        stop_reason, stop_sequence = _ending(answer)
        content: list[dict[str, Any]] = []
        if answer.tool is not None:
            content.append(
                {"type": "tool_use", "id": answer.tool_id, "name": answer.tool, "input": _arguments(answer.text)}
            )
        elif answer.text:
            content.append({"type": "text", "text": answer.text})
        body: dict[str, Any] = {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self.model,
            "stop_reason": stop_reason,
        }
        if stop_sequence is not None:
            body["stop_sequence"] = stop_sequence
        self.exchange.send(200, orjson.dumps({**body, "usage": self.usage}))

    def fail(self, error: RequestError) -> None:
        """A status."""
        self.exchange.send(error.status, error_body(error), headers=error.headers)


def _arguments(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}  # cut by max_tokens


class MessagesStream(MessagesDelivery):
    """One event per token."""

    stream = True

    def opened(self) -> None:
        """Headers go out at once."""
        self._started = False
        self.exchange.start()

    def first(self) -> None:
        """The message begins."""
        message: dict[str, Any] = {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": self.model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self.usage,
        }
        self._event("message_start", {"message": message})

    def piece(self, choice: Choice, position: int, last: bool) -> None:
        """One delta."""
        answer = choice.answer
        text = answer.visible[position]
        if not text and not (answer.tool is not None and position == answer.tool_at):
            return
        if not self._started:
            self._started = True
            block: dict[str, Any] = {"type": "text", "text": ""}
            if answer.tool is not None:
                block = {"type": "tool_use", "id": answer.tool_id, "name": answer.tool, "input": {}}
            self._event("content_block_start", {"content_block": block, "index": 0})
        if not text:
            return
        delta = {"type": "text_delta", "text": text}
        if answer.tool is not None:
            delta = {"type": "input_json_delta", "partial_json": text}
        self._event("content_block_delta", {"delta": delta, "index": 0})

    def done(self) -> None:
        """The block, the message and the stream end."""
        stop_reason, stop_sequence = _ending(self.choices[0].answer)
        if self._started:
            self._event("content_block_stop", {"index": 0})
        delta = {"stop_reason": stop_reason, "stop_sequence": stop_sequence}
        self._event("message_delta", {"delta": delta, "usage": self.usage})
        self._event("message_stop", {})
        self.exchange.end()

    def fail(self, error: RequestError) -> None:
        """An error event."""
        self._event("error", {"error": {"type": "internal_error", "message": error.message}})
        self.exchange.end()

    def _event(self, name: str, content: dict[str, Any]) -> None:
        self.exchange.write(b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps({"type": name, **content})))


__all__ = ["CountRequest", "MessagesPlain", "MessagesRequest", "MessagesStream", "count", "error_body", "serve"]

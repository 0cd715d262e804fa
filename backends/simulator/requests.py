"""What a request may say: the fields that the simulator honours, checked as vLLM checks them.

Fields it does not know are taken and ignored, as vLLM does.
"""

from __future__ import annotations

import json
import math
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from backends.simulator.errors import RequestError, json_error, parameter_error, validation_error

_INT64 = 2**63
_MOST_CHOICES = 16384
_MOST_LOGPROBS = 20
Body = TypeVar("Body", bound=BaseModel)


class StreamOptions(BaseModel):
    """`stream_options`."""

    include_usage: bool | None = True
    continuous_usage_stats: bool | None = False


class Base(BaseModel):
    """Fields of every request."""

    model_config = ConfigDict(extra="allow")
    model: str | None = None


class Sampling(Base):
    """Fields of every request that makes text."""

    n: int | None = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    seed: int | None = Field(None, ge=-_INT64, le=_INT64 - 1)
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    prompt_logprobs: int | None = None
    echo: bool = False
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    truncate_prompt_tokens: int | None = Field(None, ge=-1)
    structured_outputs: dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """Strings that end an answer."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def choices(self) -> int:
        """How many answers."""
        return 1 if self.n is None else self.n

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def wants_running_usage(self) -> bool:
        """Whether each chunk carries the usage so far."""
        options = self.stream_options
        return self.wants_usage and options is not None and bool(options.continuous_usage_stats)


class Function(BaseModel):
    """A function that the model may call."""

    model_config = ConfigDict(extra="allow")
    name: str
    parameters: dict[str, Any] | None = None


class Tool(BaseModel):
    """One of `tools`."""

    model_config = ConfigDict(extra="allow")
    function: Function


class ChatRequest(Sampling):
    """`/v1/chat/completions`."""

    messages: list[dict[str, Any]]
    logprobs: bool | None = False
    top_logprobs: int | None = 0
    max_completion_tokens: int | None = None
    tools: list[Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = True
    return_prompt_text: bool | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False


class CompletionRequest(Sampling):
    """`/v1/completions`."""

    prompt: list[int] | list[list[int]] | str | list[str] | None = None
    logprobs: int | None = None
    max_tokens: int | None = 16
    suffix: str | None = None


class EmbeddingRequest(Base):
    """`/v1/embeddings`."""

    input: list[int] | list[list[int]] | str | list[str]
    encoding_format: str = "float"
    dimensions: int | None = Field(None, ge=1)


class TokenizeRequest(Base):
    """`/tokenize`, of a prompt or of messages."""

    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    return_token_strs: bool | None = False


class DetokenizeRequest(Base):
    """`/detokenize`."""

    tokens: list[int]


def load(body: bytes) -> Any:
    """The JSON in `body`. Raises RequestError."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        error = json_error(body)
        if error is not None:
            raise error from None
        # Python's parser, which vLLM uses, takes NaN and lone surrogates
        return json.loads(body)


def parse(kind: type[Body], data: Any) -> Body:
    """`data` as a request. Raises RequestError with vLLM's text."""
    if not isinstance(data, dict):
        message = "Input should be a valid dictionary or object to extract fields from"
        raise validation_error([{"type": "model_attributes_type", "loc": (), "msg": message, "input": data}])
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise validation_error([dict(item) for item in error.errors(include_url=False)]) from None


def numbers_of(prompt: int | list[int]) -> list[int]:
    """Token numbers of one of several prompts, which for one prompt of numbers is the number itself."""
    return [prompt] if isinstance(prompt, int) else prompt


def precheck(data: Any) -> None:
    """Rules that vLLM checks on the raw body, before its types. Raises RequestError."""
    if not isinstance(data, dict):
        return
    if data.get("stream_options") and not data.get("stream"):
        raise _rule("Stream options can only be defined when `stream=True`.", "stream_options")
    form = data.get("response_format")
    if isinstance(form, dict) and form.get("type") == "json_schema" and form.get("json_schema") is None:
        raise _rule(
            "When response_format type is 'json_schema', the 'json_schema' field must be provided.", "response_format"
        )
    prompt_logprobs = _integer(data, "prompt_logprobs")
    if prompt_logprobs is not None:
        if data.get("stream") and (prompt_logprobs > 0 or prompt_logprobs == -1):
            raise _rule("`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs")
        if prompt_logprobs < -1:
            raise parameter_error(
                "`prompt_logprobs` must be a positive value or -1.", "prompt_logprobs", prompt_logprobs
            )


def precheck_chat(data: Any) -> None:
    """Those of chat alone. Raises RequestError."""
    precheck(data)
    if not isinstance(data, dict):
        return
    top = _integer(data, "top_logprobs")
    if top is not None:
        if top < -1:
            raise parameter_error("`top_logprobs` must be a positive value or -1.", "top_logprobs", top)
        if top != 0 and not data.get("logprobs"):
            raise _rule("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")
        check_logprobs(top)
    tools, choice = data.get("tools"), data.get("tool_choice")
    if tools == []:
        raise _rule(
            "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.", "tools"
        )
    if choice is None or choice == "none":
        return
    if not tools:
        raise _rule("When using `tool_choice`, `tools` must be set.", "tool_choice")
    if isinstance(choice, str) and choice not in ("auto", "required"):
        raise _rule(
            f'Invalid value for `tool_choice`: {choice}! Only named tools, "none", "auto" or "required" are supported.',
            "tool_choice",
        )
    if isinstance(choice, dict) and isinstance(tools, list):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        names = [
            t["function"].get("name") for t in tools if isinstance(t, dict) and isinstance(t.get("function"), dict)
        ]
        if name not in names:
            raise _rule(
                "The tool specified in `tool_choice` does not match any of the specified `tools`", "tool_choice"
            )


def check_logprobs(asked: float | None) -> None:
    """The most alternatives that vLLM gives unless told otherwise. Raises RequestError."""
    if asked is not None and asked > _MOST_LOGPROBS:
        raise parameter_error(
            f"Requested sample logprobs of {asked}, which is greater than max allowed: {_MOST_LOGPROBS}",
            "logprobs",
            asked,
        )


def check_sampling(request: Sampling, max_tokens: int | None, max_model_len: int, name: str = "max_tokens") -> None:
    """Ranges of the sampling parameters, in vLLM's order and words. Raises RequestError."""
    n = request.choices
    if n < 1:
        raise RequestError(f"n must be at least 1, got {n}.")
    if n > _MOST_CHOICES:
        raise RequestError(
            f"n must be at most {_MOST_CHOICES}, got {n}. To increase this limit, set the VLLM_MAX_N_SEQUENCES "
            "environment variable."
        )
    for field, low in (("presence_penalty", -2.0), ("frequency_penalty", -2.0)):
        value = getattr(request, field)
        if value is not None and not low <= value <= 2.0:
            raise RequestError(f"{field} must be in [-2, 2], got {value}.")
    if request.repetition_penalty is not None and request.repetition_penalty <= 0.0:
        raise RequestError(f"repetition_penalty must be greater than zero, got {request.repetition_penalty}.")
    temperature = request.temperature
    if temperature is not None:
        if not math.isfinite(temperature):
            raise parameter_error(
                f"temperature must be a finite number, got {temperature}.", "temperature", temperature
            )
        if temperature < 0.0:
            raise parameter_error(f"temperature must be non-negative, got {temperature}.", "temperature", temperature)
        if temperature > 2.0:
            raise parameter_error(f"temperature must be in [0, 2], got {temperature}.", "temperature", temperature)
    if request.top_p is not None and not 0.0 < request.top_p <= 1.0:
        raise parameter_error(f"top_p must be in (0, 1], got {request.top_p}.", "top_p", request.top_p)
    if request.top_k is not None and request.top_k < -1:
        raise RequestError(f"top_k must be 0 (disable), or at least 1, got {request.top_k}.")
    if request.min_p is not None and not 0.0 <= request.min_p <= 1.0:
        raise RequestError(f"min_p must be in [0, 1], got {request.min_p}.")
    if max_tokens is not None:
        if max_tokens < 1:
            raise parameter_error(f"max_tokens must be at least 1, got {max_tokens}.", "max_tokens", max_tokens)
        if max_tokens > max_model_len:
            raise parameter_error(
                f"{name}={max_tokens} cannot be greater than max_model_len={max_model_len}. "
                "Please request fewer output tokens.",
                name,
                max_tokens,
            )
    if request.min_tokens < 0:
        raise RequestError(f"min_tokens must be greater than or equal to 0, got {request.min_tokens}.")
    if max_tokens is not None and request.min_tokens > max_tokens:
        raise RequestError(
            f"min_tokens must be less than or equal to max_tokens={max_tokens}, got {request.min_tokens}."
        )
    if any(not stop for stop in request.stops):
        raise RequestError("stop cannot contain an empty string.")


def _integer(data: dict[str, Any], name: str) -> int | float | None:
    value = data.get(name)
    if value is not None and not isinstance(value, int | float):
        raise parameter_error(f"`{name}` must be an integer.", name, value)
    return value


def _rule(message: str, param: str) -> RequestError:
    return RequestError(f"{message} (parameter={param})", param=param)


__all__ = [
    "Base",
    "ChatRequest",
    "CompletionRequest",
    "DetokenizeRequest",
    "EmbeddingRequest",
    "Function",
    "Sampling",
    "StreamOptions",
    "TokenizeRequest",
    "Tool",
    "check_logprobs",
    "check_sampling",
    "load",
    "numbers_of",
    "parse",
    "precheck",
    "precheck_chat",
]

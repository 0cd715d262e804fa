"""The hosted model behind litellm: one call for each kind of request."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import warnings
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from backends.hosted.errors import HostedError
from backends.settings import HostedSettings

# OpenAI's own parameters. Others (vLLM's, and litellm's, which could redirect the call) stay here: a hosted model
# does not know them.
_CHAT = frozenset(
    {
        "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "max_completion_tokens",
        "max_tokens", "messages", "modalities", "n", "parallel_tool_calls", "prediction", "presence_penalty",
        "reasoning_effort", "response_format", "seed", "service_tier", "stop", "stream", "stream_options",
        "temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user",
    }
)  # fmt: skip
_TEXT = frozenset(
    {
        "best_of", "echo", "frequency_penalty", "logit_bias", "logprobs", "max_tokens", "n", "presence_penalty",
        "prompt", "seed", "stop", "stream", "stream_options", "suffix", "temperature", "top_p", "user",
    }
)  # fmt: skip
_EMBEDDING = frozenset({"dimensions", "encoding_format", "input", "user"})


class Provider(Protocol):
    """Answers requests. Each method raises what the provider raised."""

    async def chat(self, body: Mapping[str, Any]) -> Any:
        """An answer as a dictionary, or an async iterator of chunks if the request streams."""

    async def text(self, body: Mapping[str, Any]) -> Any:
        """The same for `/v1/completions`."""

    async def embed(self, body: Mapping[str, Any]) -> Any:
        """The embeddings as a dictionary."""

    def max_model_len(self) -> int | None:
        """Context length in tokens, if known."""


class LiteLlm:
    """A model reached through litellm, which is imported here: it takes seconds and some 200 MB."""

    def __init__(self, settings: HostedSettings, environment: Mapping[str, str]) -> None:
        # litellm reads this at import: without it the import fetches a list of prices from the network
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
        litellm = _imported("litellm")
        # pydantic's warnings quote what they warn of, and litellm's debugging output holds prompts and headers
        warnings.filterwarnings("ignore", message="Pydantic serializer warnings")
        litellm.suppress_debug_info = True
        litellm.telemetry = False
        for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._litellm = litellm
        self._settings = settings
        key = None
        if settings.api_key_env is not None:
            key = environment.get(settings.api_key_env)
            if not key:
                raise HostedError(500, f"environment variable {settings.api_key_env} holds no API key")
        self.secrets = tuple(filter(None, (key,)))
        self._common: dict[str, Any] = {
            "model": settings.target,
            "api_base": settings.api_base,
            "api_key": key,
            "timeout": settings.timeout_s,
            # the router in front decides about retries
            "num_retries": 0,
            "max_retries": 0,
            # what OpenAI knows but this provider does not is left out
            "drop_params": True,
        }

    async def chat(self, body: Mapping[str, Any]) -> Any:
        """See Provider."""
        return _plain(await self._litellm.acompletion(**self._parameters(body, _CHAT)))

    async def text(self, body: Mapping[str, Any]) -> Any:
        """See Provider."""
        return _plain(await self._litellm.atext_completion(**self._parameters(body, _TEXT)))

    async def embed(self, body: Mapping[str, Any]) -> Any:
        """See Provider."""
        parameters = self._parameters(body, _EMBEDDING)
        if "dimensions" in parameters:
            parameters["allowed_openai_params"] = ["dimensions"]
        return _plain(await self._litellm.aembedding(**parameters))

    def max_model_len(self) -> int | None:
        """See Provider: from litellm's own list of models."""
        known = self._litellm.model_cost.get(self._settings.target) or self._litellm.model_cost.get(
            self._settings.target.partition("/")[2], {}
        )
        value = known.get("max_input_tokens") or known.get("max_tokens")
        return value if isinstance(value, int) else None

    def _parameters(self, body: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
        asked = {name: value for name, value in body.items() if name in known and value is not None}
        return {**asked, **self._common}


def _imported(name: str) -> Any:
    """Import thousands of classes without looking for garbage among them time and again: that takes a quarter of it."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        if collects:
            gc.enable()


def _plain(answer: Any) -> Any:
    if hasattr(answer, "__aiter__"):
        return _chunks(answer)
    # pydantic's warnings would quote what they warn of
    return answer.model_dump(warnings=False)


async def _chunks(answer: Any) -> AsyncIterator[dict[str, Any]]:
    try:
        async for chunk in answer:
            yield chunk.model_dump(exclude_none=True, warnings=False)
    finally:
        # closes the provider's connection when the client has left
        close = getattr(answer, "aclose", None)
        if close is not None:
            await close()


__all__ = ["LiteLlm", "Provider"]

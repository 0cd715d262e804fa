"""What is asked of a variant: a greedy answer with its tokens, and the score of another variant's tokens.

vLLM (0.32) gives token ids with `return_token_ids`, and with `prompt_logprobs` on `/v1/completions` the log-probability and
rank of each token of a prompt given as ids; `echo` with `max_tokens` 0 spares the decode. Servers that know neither still
give their answers: then there is agreement and no divergence.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Any

import httpx

from router.calibration.prompts import Prompt

_TRIES = 5
_WAIT_S = 0.5
_RETRIED = (408, 429, 500, 502, 503, 504)


class SendError(RuntimeError):
    """A variant that doesn't answer: the run ends, the journal stays."""


class RefusedError(ValueError):
    """The variant refuses this one request (too long, not supported): the run goes on."""


@dataclass(frozen=True, slots=True)
class Target:
    """One variant to ask."""

    variant: str
    precision: str
    urls: tuple[str, ...]
    """Base URLs of its replicas, without `/v1`."""
    model: str
    """Name to put into `model`."""
    api_key: str | None = None
    revision: str = ""
    """Identity of its weights, as far as it is known."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A greedy answer."""

    text: str
    finish: str
    prompt_ids: tuple[int, ...]
    """Empty where the server doesn't tell token ids."""
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Of `ids`, natural logarithm."""


@dataclass(frozen=True, slots=True)
class Score:
    """Tokens of another variant's answer, judged."""

    logprobs: tuple[float, ...]
    ranks: tuple[int, ...]
    """1: the token that this variant would have taken itself."""


class Sender:
    """Requests to one variant, its replicas in turn. Retries what may pass; holds nothing but the client."""

    def __init__(self, client: httpx.AsyncClient, target: Target) -> None:
        self._client = client
        self.target = target
        self._next = 0

    async def answer(self, prompt: Prompt, max_tokens: int) -> Answer:
        """Return the greedy answer. Raises `RefusedError` and `SendError`."""
        body = {
            **prompt.request(),
            "model": self.target.model,
            "max_tokens": prompt.max_tokens or max_tokens,
            "temperature": 0,
            "logprobs": True,
            "return_token_ids": True,
        }
        found = await self._post("/v1/chat/completions", body)
        try:
            choice = found["choices"][0]
            message = choice["message"]
            text = message.get("content") or ""
            calls = message.get("tool_calls") or []
            text += "".join(f"\n{c['function']['name']}({c['function']['arguments']})" for c in calls)
            listed = ((choice.get("logprobs") or {}).get("content")) or []
            logprobs = tuple(float(entry["logprob"]) for entry in listed)
            ids, prompt_ids = choice.get("token_ids") or (), found.get("prompt_token_ids") or ()
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise SendError(f"{self.target.variant}: not a chat completion: {error!r}") from None
        size = min(len(ids), len(logprobs)) if prompt_ids else 0
        return Answer(
            text, str(choice.get("finish_reason") or ""), tuple(prompt_ids), tuple(ids)[:size], logprobs[:size]
        )

    async def score(self, prompt_ids: tuple[int, ...], ids: tuple[int, ...]) -> Score:
        """Return log-probability and rank of each of `ids` after the prompt. Raises `RefusedError` and `SendError`."""
        body = {
            "model": self.target.model,
            "prompt": [*prompt_ids, *ids],
            "max_tokens": 0,
            "echo": True,
            "temperature": 0,
            "prompt_logprobs": 0,
        }
        found = await self._post("/v1/completions", body)
        try:
            entries = found["choices"][0]["prompt_logprobs"][len(prompt_ids) :]
            own = [entry[str(token)] for entry, token in zip(entries, ids, strict=True)]
            return Score(tuple(float(e["logprob"]) for e in own), tuple(int(e["rank"]) for e in own))
        except (KeyError, IndexError, TypeError, ValueError):
            raise RefusedError("no prompt_logprobs in the answer") from None

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {self.target.api_key}"} if self.target.api_key else {}
        told = ""
        for attempt in range(_TRIES):
            url = self.target.urls[self._next % len(self.target.urls)]
            self._next += 1
            try:
                response = await self._client.post(url + path, json=body, headers=headers)
                if response.status_code < 400:
                    found = response.json()
                    if isinstance(found, dict):
                        return found
                    raise SendError(f"{self.target.variant}: {url}{path}: not an object")
                told = f"HTTP {response.status_code}: {response.text[:300]}"
                if response.status_code in (401, 403):
                    raise SendError(f"{self.target.variant}: {url}{path}: {told}")
                if response.status_code not in _RETRIED:
                    raise RefusedError(told)
            except httpx.HTTPError as error:
                told = str(error) or type(error).__name__
            except (UnicodeDecodeError, JSONDecodeError) as error:
                told = f"not JSON: {error}"
            await asyncio.sleep(_WAIT_S * 2**attempt)
        raise SendError(f"{self.target.variant}: {self.target.urls[0]}{path}: {told} ({_TRIES} tries)")

"""`/v1/completions`."""

from __future__ import annotations

import time
from typing import Any

import orjson

from backends.simulator import tokens
from backends.simulator.answers import Answer, TokenLogprob, logprobs
from backends.simulator.core import Core
from backends.simulator.delivery import Choice, Delivery
from backends.simulator.errors import RequestError, parameter_error
from backends.simulator.faults import Fault
from backends.simulator.forms import Ask, answers, form_of
from backends.simulator.http import Exchange
from backends.simulator.requests import CompletionRequest, check_logprobs, load, numbers_of, parse, precheck
from backends.simulator.runner import Runner
from backends.simulator.scores import prompt_logprobs, prompt_scores

Score = tuple[TokenLogprob, list[TokenLogprob]] | None


def serve(core: Core, exchange: Exchange) -> None:
    """Answer one request. Raises RequestError."""
    data = load(exchange.body)
    precheck(data)
    _precheck(data)
    request = parse(CompletionRequest, data)
    model = core.check_model(request.model)
    prompts = _prompts(request)
    if request.stream and request.choices > 1 and request.max_tokens == 0:
        raise RequestError("max_tokens must be at least 1, got 0.")
    # nothing but the prompt is wanted: one token is computed, as vLLM does, and not shown
    prompt_only = request.echo and request.max_tokens == 0
    lengths = [tokens.count(prompt) for prompt in prompts]
    limit = 1 if prompt_only else request.max_tokens
    made: list[Answer] = []
    rules = None
    for prompt, length in zip(prompts, lengths, strict=True):
        rules = core.rules(request, length, limit)
        made += answers(core, Ask(prompt, request.seed, request.choices, form=form_of(request)), rules)
    kind = CompletionStream if request.stream else CompletionPlain
    delivery = kind(
        exchange,
        core.runner,
        core.fault(exchange),
        request=request,
        model=model,
        fingerprint=core.fingerprint,
        prompts=prompts,
        request_id=core.request_id(exchange),
    )
    core.begin(delivery, made, lengths, max_tokens=rules.max_tokens if rules else 0)


def _precheck(data: Any) -> None:
    if not isinstance(data, dict):
        return
    logprobs = data.get("logprobs")
    if isinstance(logprobs, int | float) and logprobs < -1:
        raise parameter_error("`logprobs` must be a positive value or -1.", "logprobs", logprobs)
    if data.get("prompt") is None or data["prompt"] in ([], ""):
        message = "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)"
        raise RequestError(message, param="prompt")
    if isinstance(logprobs, int | float):
        check_logprobs(logprobs)


def _prompts(request: CompletionRequest) -> list[str]:
    """The prompts as texts. Raises RequestError for a token that is none."""
    prompt = request.prompt
    if isinstance(prompt, str):
        return [prompt]
    assert prompt
    several = [prompt] if isinstance(prompt[0], int) else prompt
    try:
        return [one if isinstance(one, str) else tokens.decode(numbers_of(one)) for one in several]
    except tokens.UnknownTokenError as error:
        raise RequestError(str(error)) from None


class CompletionDelivery(Delivery):
    """What plain and streamed answers share."""

    def __init__(
        self,
        exchange: Exchange,
        runner: Runner,
        fault: Fault | None,
        *,
        request: CompletionRequest,
        model: str,
        fingerprint: str,
        prompts: list[str],
        request_id: str,
    ) -> None:
        super().__init__(exchange, runner, fault)
        self.request = request
        self.model = model
        self.fingerprint = fingerprint
        self.prompts = prompts
        self.id = f"cmpl-{request_id}"
        self.created = int(time.time())
        self.prompt_only = request.echo and request.max_tokens == 0

    def prompt_of(self, choice: Choice) -> str:
        """The prompt that an answer belongs to."""
        return self.prompts[choice.index // self.request.choices]

    def scores_of(
        self, choice: Choice, start: int, end: int, *, prompt: bool, offset: int = 0
    ) -> dict[str, Any] | None:
        """`logprobs` of tokens `start` to `end`, after the prompt's where `prompt`; `offset` is where the text is."""
        top = self.request.logprobs
        if top is None:
            return None
        answer = choice.answer
        entries: list[tuple[str, Score]] = []
        if prompt:
            entries += prompt_scores(self.prompt_of(choice), top)
        if not self.prompt_only:
            entries += [
                (answer.raw[at], logprobs(answer.logprob_seed, at, answer.raw[at], top)) for at in range(start, end)
            ]
        return _layout(entries, offset, bool(self.request.return_tokens_as_token_ids))


def _layout(entries: list[tuple[str, Score]], offset: int, as_ids: bool) -> dict[str, Any]:
    """OpenAI's parallel lists."""

    def name(token: str) -> str:
        return f"token_id:{tokens.number(token)}" if as_ids else token

    offsets: list[int] = []
    for token, _ in entries:
        offsets.append(offset)
        offset += len(token)
    return {
        "text_offset": offsets,
        "token_logprobs": [None if score is None else score[0].logprob for _, score in entries],
        "tokens": [name(token) for token, _ in entries],
        "top_logprobs": [
            None if score is None else {name(item.token): item.logprob for item in (score[0], *score[1])}
            for _, score in entries
        ],
    }


class CompletionPlain(CompletionDelivery):
    """One JSON object, when everything is there."""

    def done(self) -> None:
        """Send it."""
        body = {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": [self._choice(choice) for choice in self.choices],
            "service_tier": None,
            "system_fingerprint": self.fingerprint,
            "usage": self.token_usage(),
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }
        self.exchange.send(200, orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS))

    def _choice(self, choice: Choice) -> dict[str, Any]:
        request, answer, prompt = self.request, choice.answer, self.prompt_of(choice)
        text = "" if self.prompt_only else answer.text
        ids = request.return_token_ids
        top = request.logprobs if request.prompt_logprobs is None and request.echo else request.prompt_logprobs
        return {
            "index": choice.index,
            "text": (prompt if request.echo and not ids else "") + text,
            "logprobs": self.scores_of(choice, 0, len(answer.raw), prompt=request.echo),
            "finish_reason": answer.finish_reason,
            "stop_reason": answer.stop_reason,
            "token_ids": [tokens.number(token) for token in answer.raw] if ids else None,
            "prompt_logprobs": prompt_logprobs(prompt, top),
            "prompt_token_ids": tokens.encode(prompt) if ids else None,
            "routed_experts": None,
        }


class CompletionStream(CompletionDelivery):
    """One event per token."""

    stream = True

    def opened(self) -> None:
        """Headers go out at once, as vLLM's do."""
        head = {"id": self.id, "object": "text_completion", "created": self.created, "model": self.model}
        self._head = b"data: " + orjson.dumps(head)[:-1] + b',"choices":['
        self._offsets = [0] * len(self.choices)
        self.exchange.start()

    def piece(self, choice: Choice, position: int, last: bool) -> None:
        """One chunk."""
        request, answer = self.request, choice.answer
        echo = request.echo and position == 0
        text = "" if self.prompt_only else answer.visible[position]
        if echo and not request.return_token_ids:
            text = self.prompt_of(choice) + text
        scores = self.scores_of(choice, position, position + 1, prompt=echo, offset=self._offsets[choice.index])
        if scores is not None and scores["tokens"]:
            token = answer.raw[position]
            self._offsets[choice.index] = scores["text_offset"][-1] + len(token)
        ids = b"[%d]" % tokens.number(answer.raw[position]) if request.return_token_ids else b"null"
        prompt_ids = b"null"
        if position == 0 and (request.return_token_ids or echo):
            prompt_ids = orjson.dumps(tokens.encode(self.prompt_of(choice)))
        ending, tail = b"null", b""
        if last:
            ending = b'"%b"' % answer.finish_reason.encode()
            if not request.wants_usage:
                tail = b',"system_fingerprint":"%b"' % self.fingerprint.encode()
        if request.wants_running_usage:
            prompt_tokens = tokens.count(self.prompt_of(choice))
            tail = b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}' % (
                prompt_tokens,
                prompt_tokens + position + 1,
                position + 1,
            )
        self.exchange.write(
            b'%b{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b,"stop_reason":%b,"prompt_token_ids":%b,"token_ids":%b}]%b}\n\n'
            % (
                self._head,
                choice.index,
                orjson.dumps(text),
                orjson.dumps(scores),
                ending,
                orjson.dumps(answer.stop_reason if last else None),
                prompt_ids,
                ids,
                tail,
            )
        )

    def done(self) -> None:
        """Usage where asked for, and the end."""
        last = self.closing(self._head, self.fingerprint) if self.request.wants_usage else b""
        self.exchange.end(last + b"data: [DONE]\n\n")


__all__ = ["CompletionPlain", "CompletionStream", "serve"]

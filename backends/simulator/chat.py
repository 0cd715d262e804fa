"""`/v1/chat/completions`."""

from __future__ import annotations

import time
from typing import Any

import orjson

from backends.simulator import tokens
from backends.simulator.answers import Answer, logprobs
from backends.simulator.core import Core
from backends.simulator.delivery import Choice, Delivery
from backends.simulator.faults import Fault
from backends.simulator.forms import Ask, answers, choice_of, form_of
from backends.simulator.http import Exchange
from backends.simulator.prompts import content_text, render_chat
from backends.simulator.requests import ChatRequest, load, parse, precheck_chat
from backends.simulator.runner import Runner
from backends.simulator.scores import prompt_logprobs


def _bytes(text: str) -> list[int]:
    return list(text.encode("utf-8", "replace"))


def token_logprobs(answer: Answer, position: int, top: int, as_ids: bool) -> dict[str, Any]:
    """One entry of `logprobs.content`."""
    own, ranked = logprobs(answer.logprob_seed, position, answer.raw[position], top)

    def name(token: str) -> str:
        return f"token_id:{tokens.number(token)}" if as_ids else token

    return {
        "token": name(own.token),
        "logprob": own.logprob,
        "bytes": _bytes(own.token),
        "top_logprobs": [{"token": name(t.token), "logprob": t.logprob, "bytes": _bytes(t.token)} for t in ranked],
    }


class ChatDelivery(Delivery):
    """What plain and streamed answers share."""

    def __init__(
        self,
        exchange: Exchange,
        runner: Runner,
        fault: Fault | None,
        *,
        request: ChatRequest,
        model: str,
        fingerprint: str,
        prompt: str,
        request_id: str,
        echo: str,
    ) -> None:
        super().__init__(exchange, runner, fault)
        self.request = request
        self.model = model
        self.fingerprint = fingerprint
        self.prompt = prompt
        self.id = f"chatcmpl-{request_id}"
        self.created = int(time.time())
        self.echo = echo
        choice = request.tool_choice
        self.named = isinstance(choice, dict)

    def finish_reason(self, answer: Answer) -> str:
        """A call ends with `tool_calls`, unless the client named the function."""
        if answer.tool is not None and not self.named and answer.finish_reason == "stop":
            return "tool_calls"
        return answer.finish_reason

    def logprobs_of(self, answer: Answer, start: int, end: int) -> dict[str, Any] | None:
        """`logprobs` of tokens `start` to `end`."""
        request = self.request
        if not request.logprobs:
            return None
        top, as_ids = request.top_logprobs or 0, bool(request.return_tokens_as_token_ids)
        return {"content": [token_logprobs(answer, position, top, as_ids) for position in range(start, end)]}


class ChatPlain(ChatDelivery):
    """One JSON object, when everything is there."""

    def done(self) -> None:
        """Send it."""
        request = self.request
        body = {
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [self._choice(choice) for choice in self.choices],
            "service_tier": None,
            "system_fingerprint": self.fingerprint,
            "usage": self.token_usage(),
            "prompt_logprobs": prompt_logprobs(self.prompt, self._prompt_top()),
            "prompt_token_ids": tokens.encode(self.prompt) if request.return_token_ids else None,
            "prompt_text": self.prompt if request.return_prompt_text else None,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }
        self.exchange.send(200, orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS))

    def _prompt_top(self) -> int | None:
        request = self.request
        return request.top_logprobs if request.prompt_logprobs is None and request.echo else request.prompt_logprobs

    def _choice(self, choice: Choice) -> dict[str, Any]:
        answer = choice.answer
        message: dict[str, Any] = {
            "role": "assistant",
            "content": self.echo + answer.text,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
        }
        if answer.tool is not None:
            forced = self.request.tool_choice not in (None, "auto")
            message["content"] = self.echo or ("" if forced else None)
            message["tool_calls"] = [
                {"id": answer.tool_id, "type": "function", "function": {"name": answer.tool, "arguments": answer.text}}
            ]
        message["reasoning"] = None
        return {
            "index": choice.index,
            "message": message,
            "logprobs": self.logprobs_of(answer, 0, len(answer.raw)),
            "finish_reason": self.finish_reason(answer),
            "stop_reason": answer.stop_reason,
            "token_ids": [tokens.number(token) for token in answer.raw] if self.request.return_token_ids else None,
            "routed_experts": None,
        }


class ChatStream(ChatDelivery):
    """One event per token."""

    stream = True

    def opened(self) -> None:
        """Headers go out at once, as vLLM's do."""
        head = {"id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model}
        self._head = b"data: " + orjson.dumps(head)[:-1] + b',"choices":['
        self._counted = [0] * len(self.choices)
        self.exchange.start()

    def first(self) -> None:
        """The role of each answer, and what is echoed."""
        usage = b""
        if self.request.wants_running_usage:
            usage = self._usage(0)
        prompt = b',"prompt_token_ids":%b,"prompt_text":%b}\n\n' % (
            orjson.dumps(tokens.encode(self.prompt)) if self.request.return_token_ids else b"null",
            orjson.dumps(self.prompt) if self.request.return_prompt_text else b"null",
        )
        events = [
            b'%b{"index":%d,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]%b%b'
            % (self._head, choice.index, usage, prompt)
            for choice in self.choices
        ]
        if self.echo:
            events += [
                b'%b{"index":%d,"delta":{"content":%b},"logprobs":null,"finish_reason":null}]%b}\n\n'
                % (self._head, choice.index, orjson.dumps(self.echo), usage)
                for choice in self.choices
            ]
        self.exchange.write(b"".join(events))

    def piece(self, choice: Choice, position: int, last: bool) -> None:
        """One chunk."""
        request, answer = self.request, choice.answer
        text = answer.visible[position]
        self._counted[choice.index] += 1
        if answer.tool is None:
            delta = b'{"content":%b}' % orjson.dumps(text)
        else:
            found = self._tool_delta(answer, position, text)
            if found is None and not last and not request.logprobs and not request.return_token_ids:
                return
            delta = found or b"{}"
        scores = orjson.dumps(self.logprobs_of(answer, position, position + 1)) if request.logprobs else b"null"
        ids = b"[%d]" % tokens.number(answer.raw[position]) if request.return_token_ids else b"null"
        tail = b""
        if last:
            ending = b'"%b","stop_reason":%b' % (self.finish_reason(answer).encode(), orjson.dumps(answer.stop_reason))
            if not request.wants_usage:
                tail = b',"system_fingerprint":"%b"' % self.fingerprint.encode()
        else:
            ending = b"null"
        if request.wants_running_usage:
            tail = self._usage(self._counted[choice.index])
        self.exchange.write(
            b'%b{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":%b,"token_ids":%b}]%b}\n\n'
            % (self._head, choice.index, delta, scores, ending, ids, tail)
        )

    def done(self) -> None:
        """Usage where asked for, and the end."""
        last = self.closing(self._head, self.fingerprint) if self.request.wants_usage else b""
        self.exchange.end(last + b"data: [DONE]\n\n")

    def _usage(self, completion: int) -> bytes:
        return (
            b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"completion_tokens_details":null}'
            % (self.prompt_tokens, self.prompt_tokens + completion, completion)
        )

    def _tool_delta(self, answer: Answer, position: int, text: str) -> bytes | None:
        """None while the call's markup is being made."""
        if position == answer.tool_at:
            call: dict[str, Any] = {"id": answer.tool_id, "type": "function", "index": 0}
            call["function"] = {"name": answer.tool}
        elif text:
            call = {"index": 0, "function": {"arguments": text}}
        else:
            return None
        return b'{"content":null,"tool_calls":[%b]}' % orjson.dumps(call)


def serve(core: Core, exchange: Exchange) -> None:
    """Answer one request. Raises RequestError."""
    data = load(exchange.body)
    precheck_chat(data)
    request = parse(ChatRequest, data)
    model = core.check_model(request.model)
    generate = request.add_generation_prompt and not request.continue_final_message
    prompt = render_chat(request.messages, request.tools, generate=generate, go_on=request.continue_final_message)
    functions = [tool.function for tool in request.tools or ()]
    last = request.messages[-1]
    choice = choice_of(request.tool_choice, functions, answered=last.get("role") == "tool")
    ask = Ask(prompt, request.seed, request.choices, functions, choice, form_of(request))
    limit, name = request.max_tokens, "max_tokens"
    if request.max_completion_tokens is not None:
        limit, name = request.max_completion_tokens, "max_completion_tokens"
    prompt_tokens = tokens.count(prompt)
    rules = core.rules(request, prompt_tokens, limit, name)
    echo = content_text(last.get("content"), ()) if request.echo and last.get("role") == "assistant" else ""
    made = answers(core, ask, rules)
    kind = ChatStream if request.stream else ChatPlain
    delivery = kind(
        exchange,
        core.runner,
        core.fault(exchange),
        request=request,
        model=model,
        fingerprint=core.fingerprint,
        prompt=prompt,
        request_id=core.request_id(exchange),
        echo=echo,
    )
    core.begin(delivery, made, [prompt_tokens], max_tokens=rules.max_tokens)


__all__ = ["ChatPlain", "ChatStream", "serve", "token_logprobs"]

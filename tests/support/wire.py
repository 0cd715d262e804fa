"""Bytes as vLLM 0.32 sends them: answers, stream events, errors, and their HTTP framing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import pairwise
from typing import Any, Literal

Framing = Literal["chunked", "close", "length"]
"""How the end of a body is told: chunks, the connection's end, or a content-length."""

DONE = b"data: [DONE]\n\n"
SSE_TYPE = "text/event-stream; charset=utf-8"


def dumps(value: Any) -> str:
    """Compact JSON with characters unescaped, as vLLM writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def event(data: str | bytes) -> bytes:
    """One SSE event of one `data:` line."""
    raw = data.encode() if isinstance(data, str) else data
    return b"data: " + raw + b"\n\n"


def crlf(events: bytes) -> bytes:
    """The same events with CRLF line ends."""
    return events.replace(b"\n", b"\r\n")


def error_body(message: str, kind: str = "BadRequestError", param: str | None = None, code: int = 400) -> bytes:
    """vLLM's error object, as a body or as the data of an error event."""
    return dumps({"error": {"message": message, "type": kind, "param": param, "code": code}}).encode()


@dataclass(frozen=True, slots=True)
class ChatWire:
    """Chunks and answers of `/v1/chat/completions`; `raw` arguments are JSON texts put in as they are."""

    model: str = "m"
    id: str = "chatcmpl-ab1cc4e58db8a0d3"
    created: int = 1796021585

    def _event(self, rest: str) -> bytes:
        head = f'{{"id":"{self.id}","object":"chat.completion.chunk","created":{self.created},"model":"{self.model}",'
        return event(head + rest + "}")

    def role(self) -> bytes:
        """The first chunk of a stream: a role and no text."""
        return self._event(
            '"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],'
            '"prompt_token_ids":null,"prompt_text":null'
        )

    def delta(self, raw: str, finish: str | None = None, index: int = 0) -> bytes:
        """A chunk with this JSON text as its delta."""
        reason = '"finish_reason":null' if finish is None else f'"finish_reason":"{finish}","stop_reason":null'
        return self._event(f'"choices":[{{"index":{index},"delta":{raw},"logprobs":null,{reason},"token_ids":null}}]')

    def content(self, text: str, finish: str | None = None, index: int = 0) -> bytes:
        """A chunk with this text."""
        return self.delta(f'{{"content":{dumps(text)}}}', finish, index)

    def tool_start(self, name: str, call: int = 0) -> bytes:
        """The first delta of a tool call: its name, no arguments yet."""
        raw = f'{{"id":"chatcmpl-tool-{call:08d}","type":"function","index":{call},"function":{{"name":{dumps(name)},"arguments":""}}}}'
        return self.delta(f'{{"tool_calls":[{raw}]}}')

    def tool_arguments(self, raw_string: str, call: int = 0) -> bytes:
        """A delta of a tool call's arguments; `raw_string` is the inside of a JSON string, escaped by the caller."""
        return self.delta(f'{{"tool_calls":[{{"index":{call},"function":{{"arguments":"{raw_string}"}}}}]}}')

    def usage(self, prompt: int, completion: int) -> bytes:
        """The chunk after the last one: no choices, the usage."""
        return self._event(
            f'"choices":[],"usage":{{"prompt_tokens":{prompt},"total_tokens":{prompt + completion},'
            f'"completion_tokens":{completion}}},"system_fingerprint":"vllm-0.32.0-ed8273d7"'
        )

    def error(self, message: str = "EngineCore encountered an issue.", code: int = 500) -> bytes:
        """An error inside a stream that has begun with status 200."""
        return event(error_body(message, "InternalServerError", None, code))

    def stream(self, texts: Sequence[str], prompt: int = 13, *, usage: bool = False) -> list[bytes]:
        """The events of a whole stream, `[DONE]` included; each text is one token."""
        events = [self.role(), *(self.content(t) for t in texts[:-1]), self.content(texts[-1], "stop")]
        if usage:
            events.append(self.usage(prompt, len(texts)))
        return [*events, DONE]

    def answer(self, text: str = " importlib", prompt: int = 13, completion: int = 5) -> bytes:
        """The body of a whole plain answer."""
        return (
            f'{{"id":"{self.id}","object":"chat.completion","created":{self.created},"model":"{self.model}","choices":[{{"index":0,'
            f'"message":{{"role":"assistant","content":{dumps(text)},"refusal":null,"annotations":null,"audio":null,'
            '"function_call":null,"reasoning":null},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null,'
            '"routed_experts":null}],"service_tier":null,"system_fingerprint":"vllm-0.32.0-ed8273d7","usage":'
            f'{{"prompt_tokens":{prompt},"total_tokens":{prompt + completion},"completion_tokens":{completion},'
            '"prompt_tokens_details":null,"completion_tokens_details":null},"prompt_logprobs":null,"prompt_token_ids":null,'
            '"prompt_text":null,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}'
        ).encode()

    def odd_answer(self, prompt: int = 13, completion: int = 5) -> bytes:
        """A valid answer that no JSON library writes like this: only passing the bytes through keeps it."""
        return (
            f'{{ "id" : "{self.id}",\n  "object":"chat.completion", "created": {self.created},"model":"{self.model}","choices":[ {{"index":0,'
            '"message":{"role":"assistant","content":"\\u4F60\\u597d \\/ \\ud83d\\uDE00 caf\\u00e9 é \\u0041"},'
            '"logprobs":{"content":[{"token":"a","logprob":-1.0E-5,"bytes":[97],"top_logprobs":[]},'
            '{"token":"b","logprob":-0.10000000000000000555,"bytes":null,"top_logprobs":[]}]},'
            '"finish_reason":"stop" } ] ,"x":1.50, "big":12345678901234567890123,"e":1e+2,"usage":{"prompt_tokens":'
            f'{prompt},"completion_tokens":{completion} , "total_tokens":{prompt + completion}}} }}\n'
        ).encode()

    def odd_stream(self) -> list[bytes]:
        """Events with unusual numbers, escapes and spaces, in several scripts."""
        return [
            self.role(),
            self.delta('{"content":"\\u4F60\\u597d \\/ \\ud83d\\uDE00"}'),
            self.content("你好，世界 😀 é"),
            self.delta('{ "content" : "a" , "x":[1.50,1e+2,-0.0,12345678901234567890123] }'),
            self.content('"quoted" \\ and\nlines\tdata: [DONE]'),
            self.content("end", "stop"),
            DONE,
        ]


@dataclass(frozen=True, slots=True)
class CompletionWire:
    """Chunks and answers of `/v1/completions`."""

    model: str = "m"
    id: str = "cmpl-8c8094b9e3cc1e85"
    created: int = 1796021585

    def _head(self) -> str:
        return f'{{"id":"{self.id}","object":"text_completion","created":{self.created},"model":"{self.model}",'

    def text(self, text: str, finish: str | None = None) -> bytes:
        """A chunk with this text."""
        reason = "null" if finish is None else f'"{finish}"'
        return event(
            self._head() + f'"choices":[{{"index":0,"text":{dumps(text)},"logprobs":null,"finish_reason":{reason},'
            '"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}'
        )

    def usage(self, prompt: int, completion: int) -> bytes:
        """The chunk after the last one: no choices, the usage."""
        return event(
            self._head() + f'"choices":[],"usage":{{"prompt_tokens":{prompt},"total_tokens":{prompt + completion},'
            f'"completion_tokens":{completion}}},"system_fingerprint":"vllm-0.32.0-ed8273d7"}}'
        )

    def stream(self, texts: Sequence[str], prompt: int = 3, *, usage: bool = False) -> list[bytes]:
        """The events of a whole stream, `[DONE]` included."""
        events = [*(self.text(t) for t in texts[:-1]), self.text(texts[-1], "stop")]
        if usage:
            events.append(self.usage(prompt, len(texts)))
        return [*events, DONE]

    def answer(self, text: str = "attrs", prompt: int = 3, completion: int = 2) -> bytes:
        """The body of a whole plain answer."""
        return (
            self._head()
            + f'"choices":[{{"index":0,"text":{dumps(text)},"logprobs":null,"finish_reason":"stop","stop_reason":null,'
            '"token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null}],"service_tier":null,"system_fingerprint":null,'
            f'"usage":{{"prompt_tokens":{prompt},"total_tokens":{prompt + completion},"completion_tokens":{completion},'
            '"prompt_tokens_details":null},"kv_transfer_params":null}'
        ).encode()


def response_head(
    status: int = 200,
    content_type: str = SSE_TYPE,
    headers: Sequence[tuple[str, str]] = (),
    *,
    framing: Framing = "chunked",
    length: int = 0,
) -> bytes:
    """Status line and headers as uvicorn sends them."""
    reason = HTTPStatus(status).phrase
    lines = [f"HTTP/1.1 {status} {reason}", "date: Mon, 30 Nov 2026 07:00:00 GMT", "server: uvicorn"]
    told = {
        "length": f"content-length: {length}",
        "chunked": "transfer-encoding: chunked",
        "close": "connection: close",
    }
    lines.append(told[framing])
    lines.append(f"content-type: {content_type}")
    lines.extend(f"{name}: {value}" for name, value in headers)
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def chunk(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"


def response(
    pieces: Iterable[bytes],
    framing: Framing = "chunked",
    status: int = 200,
    content_type: str = SSE_TYPE,
    headers: Sequence[tuple[str, str]] = (),
) -> list[bytes]:
    """A whole HTTP answer as pieces to send: the head, then one piece for each piece of the body (each an HTTP chunk
    of its own where framing is chunked). With framing `close` the sender must close afterwards."""
    body = list(pieces)
    head = response_head(status, content_type, headers, framing=framing, length=sum(map(len, body)))
    if framing == "chunked":
        return [head, *(chunk(p) for p in body if p), LAST_CHUNK]
    return [head, *body]


def json_response(body: bytes, status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """A whole JSON answer with its length."""
    return b"".join(response([body], "length", status, "application/json", headers))


def split(data: bytes, positions: Iterable[int]) -> list[bytes]:
    """The bytes cut before each of these positions; empty pieces are left out."""
    cuts = [0, *sorted({p for p in positions if 0 < p < len(data)}), len(data)]
    return [data[a:b] for a, b in pairwise(cuts)]

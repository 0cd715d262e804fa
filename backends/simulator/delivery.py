"""Carries the tokens of one request to its client, and strikes the faults that need tokens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from backends.simulator.answers import Answer
from backends.simulator.engine import Sequence, TooLargeError
from backends.simulator.errors import RequestError
from backends.simulator.faults import Fault
from backends.simulator.http import Exchange
from backends.simulator.runner import Owner, Runner

_LOG = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Choice:
    """One of a request's answers, on its way."""

    delivery: Delivery
    index: int
    answer: Answer

    @property
    def finish_reason(self) -> str:
        """For the engine's metrics."""
        return self.answer.finish_reason

    def token(self, sequence: Sequence[Owner]) -> None:
        """The runner's call; it never raises: one request's trouble would be that of all."""
        try:
            self.delivery.on_token(self, sequence.produced - 1, sequence.state == "finished")
        except Exception:
            _LOG.exception("a token could not be told")
            self.delivery.broken()


class Delivery:
    """One request being answered; subclasses know its format.

    `opened` comes when the request is queued, `first` before the first token, `piece` for each token, `done` after the
    last.
    """

    stream = False

    def __init__(self, exchange: Exchange, runner: Runner, fault: Fault | None) -> None:
        self.exchange = exchange
        self.fault = fault
        self.choices: list[Choice] = []
        self.prompt_tokens = 0
        self.ended: Callable[[], None] = lambda: None
        """Called once when the request is over, however it ended."""
        self._runner = runner
        self._sequences: list[Sequence[Owner]] = []
        self._tokens = 0
        self._open = 0
        self._silent = False

    pooling = False
    """Whether it makes embeddings."""

    def strand(self) -> None:
        """Suffer a fault that strikes before any byte."""
        if self.fault is not None and self.fault.kind == "drop":
            self.exchange.reset()
            self.ended()
        else:
            self.exchange.on_close = self.ended

    def begin(self, answers: list[Answer], prompts: list[int]) -> None:
        """Queue the answers: as many to each prompt, whose lengths in tokens are given. Raises RequestError."""
        per_prompt = len(answers) // len(prompts)
        self.prompt_tokens = sum(prompts)
        for index, answer in enumerate(answers):
            choice = Choice(self, index, answer)
            self.choices.append(choice)
            sequence: Sequence[Owner] = Sequence(choice, prompts[index // per_prompt], max(1, len(answer.raw)))
            sequence.pooling = self.pooling
            sequence.billed = index % per_prompt > 0
            self._sequences.append(sequence)
        self._open = len(answers)
        try:
            self._runner.submit(self._sequences)
        except TooLargeError as error:
            raise RequestError(str(error)) from None
        self.exchange.on_close = self._gone
        self.opened()

    @property
    def completion_tokens(self) -> int:
        """Tokens made so far."""
        return self._tokens

    def token_usage(self) -> dict[str, Any]:
        """`usage` of a whole chat or text answer."""
        made = self.completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + made,
            "completion_tokens": made,
            "prompt_tokens_details": None,
            "completion_tokens_details": None,
        }

    def closing(self, head: bytes, fingerprint: str) -> bytes:
        """Return the event of a chat or text stream that has its `usage`; `head` is what all its events begin with."""
        made = self.completion_tokens
        return (
            b'%b],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d},"system_fingerprint":"%b"}\n\n'
            % (head, self.prompt_tokens, self.prompt_tokens + made, made, fingerprint.encode())
        )

    def on_token(self, choice: Choice, position: int, last: bool) -> None:
        """One token of one answer."""
        if self._silent:
            return
        fault = self.fault
        if fault is not None and self._tokens >= fault.tokens and self._strike(fault):
            return
        if self._tokens == 0:
            self.first()
        self._tokens += 1
        self.piece(choice, position, last)
        if last:
            self._open -= 1
            if self._open == 0:
                self._silent = True
                self.done()
                self.ended()

    def opened(self) -> None:
        """The request is queued."""

    def first(self) -> None:
        """The first token is there."""

    def piece(self, choice: Choice, position: int, last: bool) -> None:
        """One token is there."""

    def done(self) -> None:
        """All tokens were given."""

    def fail(self, error: RequestError) -> None:
        """End with an error: an event in a stream, else a status."""
        if self.stream:
            self.exchange.end(error.event())
        else:
            self.exchange.send(error.status, error.body(), headers=error.headers)

    def broken(self) -> None:
        """End a request whose tokens cannot be told."""
        last = self._silent and self._open == 0
        self._gone()
        if last:
            # It was over but for this.
            self.ended()
        self.fail(RequestError("Internal server error", status=500, kind="InternalServerError"))

    def _strike(self, fault: Fault) -> bool:
        if fault.kind == "hang_after":
            self._silent = True
            return True
        if fault.kind == "reset":
            self._gone()
            self.exchange.reset()
            return True
        if fault.kind == "error_event":
            self._gone()
            self.fail(RequestError("Internal server error", status=500, kind="InternalServerError"))
            return True
        return False

    def _gone(self) -> None:
        """Nobody waits for the rest."""
        over = self._silent and self._open == 0
        self._silent = True
        for sequence in self._sequences:
            self._runner.abort(sequence)
        if not over:
            self._open = 0
            self.ended()


__all__ = ["Choice", "Delivery"]

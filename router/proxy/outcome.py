"""What became of one request: filled in while it runs, read once at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from router.decision.types import Decision
from router.feedback.watch import Watch
from router.proxy.deciding import Question
from router.proxy.surface import Endpoint
from router.proxy.usage import Usage
from router.state import Group, Replica, Variant
from router.state.prompts import BEGINNING, Mark

if TYPE_CHECKING:
    from router.telemetry.tracing import Trace


@dataclass(slots=True)
class Outcome:
    """One request from its first byte to its last; times are seconds of the event loop's clock."""

    request_id: str
    endpoint: Endpoint
    began: float
    group: Group | None = None
    decision: Decision | None = None
    question: Question | None = None
    """What was decided on."""
    risks: Mapping[str, float] = field(default_factory=dict)
    units: float = 0.0
    """Size of the prompt, as `text_units` gives it."""
    sequences: int = 1
    """Answers that the request generates: choices times prompts."""
    stream: bool = False
    variant: Variant | None = None
    replica: Replica | None = None
    attempts: int = 0
    sent_up: float = 0.0
    """When the last attempt was sent."""
    running: float = 0.0
    """Requests that ran on the replica when this one was sent, itself included."""
    queued: bool = False
    """Whether the replica had a queue then."""
    ahead: float = 0.0
    """Prompt tokens that it had to compute first."""
    mark: Mark = BEGINNING
    """Prompt tokens that had come to the replica by then, this request's included."""
    first_token_at: float | None = None
    last_token_at: float | None = None
    pieces: int = 0
    """Events of a stream that were passed on: about its tokens, where the usage was never told."""
    usage: Usage | None = None
    cache: Literal["hit", "miss", "bypass"] = "bypass"
    cache_key: str | None = None
    """Digest of the request, where it may use the cache."""
    cache_age_s: int = 0
    """Age of the answer that a hit gave."""
    cache_likeness: float | None = None
    """Of a hit on another wording of the question."""
    cache_check: Literal["confirmed", "wrong"] | None = None
    """What a fresh answer said of the one kept for another wording."""
    tenant: str | None = None
    watch: Watch | None = None
    """What is to be learnt of the answer's quality."""
    trace: Trace | None = None
    """Its spans, where traces are made."""
    status: int = 0
    """HTTP status for the client; 499 when the client left."""
    error: str | None = None
    ended: float = 0.0
    at: float = 0.0
    """Unix time of its end, to the millisecond: by it and its id a request is known."""

    @property
    def ttft_s(self) -> float | None:
        """First token after the request's arrival, seconds; None for an answer that did not stream."""
        return None if self.first_token_at is None else self.first_token_at - self.began

    @property
    def itl_s(self) -> float | None:
        """Mean time between tokens, seconds; None where several answers came side by side."""
        if self.first_token_at is None or self.last_token_at is None or self.usage is None or self.sequences > 1:
            return None
        further = self.usage.completion_tokens - 1
        return (self.last_token_at - self.first_token_at) / further if further > 0 else None

    @property
    def ok(self) -> bool:
        """Whether the client got a whole answer."""
        return self.error is None and 200 <= self.status < 300

"""Failures on demand, set while the server runs."""

from __future__ import annotations

import random
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from backends.settings import SimulatorSettings

GENERATION_PATHS = frozenset(
    {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"}
)
"""Where faults strike: requests for work, never probes."""


class Fault(BaseModel):
    """One failure, and how many requests it strikes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["status", "hang", "drop", "hang_after", "reset", "error_event", "slow", "reject"] = Field(
        description="status: answer with `status`. hang: never answer. drop: break the connection before "
        "any byte. hang_after: stop sending after `tokens` tokens (0: after a stream's headers). reset: break the "
        "connection after `tokens` tokens. error_event: after `tokens` tokens, "
        "an error inside the stream of status 200 (a request that is no stream gets status 500). slow: multiply every "
        "time by `factor`. reject: 503 while more than `queue` requests wait."
    )
    status: int = Field(500, ge=400, le=599, description="For kind status.")
    retry_after: float | None = Field(None, ge=0, description="Retry-After of kinds status and reject, seconds.")
    tokens: int = Field(0, ge=0, description="Tokens sent before kinds hang_after, reset and error_event strike.")
    factor: float = Field(1.0, gt=0, description="For kind slow.")
    queue: int = Field(0, ge=0, description="For kind reject.")
    count: int | None = Field(None, ge=1, description="Requests it strikes; None: all until it is removed.")


class Faults:
    """The faults in force. `slow` and `reject` last until removed; the others are used up by requests."""

    def __init__(self, settings: SimulatorSettings) -> None:
        self._error_rate = settings.error_rate
        self._random = random.Random(settings.seed)
        self.faults: list[tuple[Fault, int | None]] = []
        self.struck = 0

    @property
    def slow(self) -> float:
        """Factor on every time."""
        factor = 1.0
        for fault, _ in self.faults:
            if fault.kind == "slow":
                factor *= fault.factor
        return factor

    def replace(self, faults: list[Fault]) -> None:
        """Forget those in force and take these."""
        self.faults = [(fault, fault.count) for fault in faults]

    def strike(self, waiting: int) -> Fault | None:
        """The fault that this request suffers, if any; `waiting` requests are queued."""
        fault = self._next(waiting)
        if fault is None and self._error_rate and self._random.random() < self._error_rate:
            fault = Fault.model_validate({"kind": "status"})
        if fault is not None:
            self.struck += 1
        return fault

    def _next(self, waiting: int) -> Fault | None:
        for index, (fault, left) in enumerate(self.faults):
            if fault.kind == "slow" or (fault.kind == "reject" and waiting <= fault.queue):
                continue
            if left is not None:
                if left == 1:
                    del self.faults[index]
                else:
                    self.faults[index] = (fault, left - 1)
            return fault
        return None


__all__ = ["GENERATION_PATHS", "Fault", "Faults"]

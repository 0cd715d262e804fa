"""What every endpoint of one simulated server shares: its engine, its faults, its limits."""

from __future__ import annotations

import time
from hashlib import sha256
from uuid import uuid4

from backends.settings import Precision, SimulatorSettings
from backends.simulator.answers import Answer, Rules
from backends.simulator.delivery import Delivery
from backends.simulator.errors import RequestError, model_error, too_long_error
from backends.simulator.faults import Fault, Faults
from backends.simulator.http import Exchange
from backends.simulator.metrics import EngineMetrics
from backends.simulator.requests import Sampling, check_sampling
from backends.simulator.runner import Runner, build_engine

VERSION = "0.32.0"
"""The version of vLLM whose format this is."""


class Core:
    """One model at one precision."""

    def __init__(
        self, settings: SimulatorSettings, *, model: str, precision: Precision, aliases: tuple[str, ...] = ()
    ) -> None:
        self.settings = settings
        self.model = model
        self.precision = precision
        self.names = (model, *aliases)
        self.engine = build_engine(settings, precision)
        self.metrics = EngineMetrics(
            self.engine, model, max_model_len=settings.max_model_len, kv_bytes=int(settings.kv_cache_gib * 2**30)
        )
        self.faults = Faults(settings)
        self.runner = Runner(self.engine, self.metrics, settings.time_scale, lambda: self.faults.slow)
        self.started = int(time.time())
        self.fingerprint = f"vllm-{VERSION}-{sha256(f'{model} {precision} {settings!r}'.encode()).hexdigest()[:8]}"
        self.seen = 0
        """Requests for work, those struck by a fault included."""
        self.in_flight = 0

    def check_model(self, name: str | None) -> str:
        """The name under which the answer goes back. Raises RequestError for a model that is not served."""
        if not name:
            return self.model
        if name not in self.names:
            raise model_error(name, self.names)
        return name

    def rules(self, request: Sampling, prompt_tokens: int, limit: int | None, name: str = "max_tokens") -> Rules:
        """What ends the answers; `limit` came in the field `name`. Raises RequestError where vLLM refuses."""
        longest = self.settings.max_model_len
        check_sampling(request, limit, longest, name)
        if prompt_tokens + 1 > longest:  # one token must fit behind the prompt
            raise too_long_error(prompt_tokens, longest)
        room = longest - prompt_tokens
        return Rules(
            max_tokens=room if limit is None else min(limit, room),
            min_tokens=request.min_tokens,
            ignore_eos=request.ignore_eos,
            stops=request.stops,
            stop_token_ids=frozenset(request.stop_token_ids or ()),
            include_stop=request.include_stop_str_in_output,
        )

    def fault(self, exchange: Exchange) -> Fault | None:
        """The fault that strikes this request in its course; raises RequestError for one that refuses it.

        Call it once per valid request for work, before `begin`.
        """
        self.seen += 1
        fault = self.faults.strike(len(self.engine.waiting))
        if fault is None:
            return None
        retry = () if fault.retry_after is None else (("retry-after", f"{fault.retry_after:g}"),)
        if fault.kind == "status":
            raise RequestError("Simulated failure", status=fault.status, kind=_kind(fault.status), headers=retry)
        if fault.kind == "reject":
            self.metrics.rejected += 1
            raise RequestError("Simulated queue is full", status=503, kind=_kind(503), headers=retry)
        return fault

    def begin(self, delivery: Delivery, answers: list[Answer], prompts: list[int], *, max_tokens: int = 0) -> None:
        """Queue the answers to prompts of these lengths: as many to each. Raises RequestError."""
        self.in_flight += 1
        delivery.ended = self._over
        fault = delivery.fault
        if fault is not None and fault.kind in ("hang", "drop"):
            delivery.strand()
            return
        if max_tokens:
            self.metrics.n.observe(len(answers) // len(prompts))
            self.metrics.max_tokens.observe(max_tokens)
        try:
            delivery.begin(answers, prompts)
        except RequestError:
            self.in_flight -= 1
            raise

    def request_id(self, exchange: Exchange) -> str:
        """The client's own id, or a fresh one."""
        return exchange.headers.get("x-request-id") or uuid4().hex[:16]

    def state(self) -> dict[str, int | float]:
        """Counts of this moment and since the start."""
        return {
            "running": len(self.engine.running),
            "waiting": len(self.engine.waiting),
            "kv_usage": self.engine.kv_usage,
            "in_flight": self.in_flight,
            "requests": self.seen,
            "finished": sum(self.metrics.finished[reason] for reason in ("stop", "length")),
            "aborted": self.metrics.finished["abort"],
            "struck": self.faults.struck,
            "prompt_tokens": self.engine.counts.prompt_tokens,
            "generation_tokens": self.engine.counts.generation_tokens,
        }

    def _over(self) -> None:
        self.in_flight -= 1


def _kind(status: int) -> str:
    return {400: "BadRequestError", 401: "Unauthorized", 404: "NotFoundError", 429: "Too Many Requests",
            503: "ServiceUnavailableError"}.get(status, "InternalServerError" if status >= 500 else "BadRequestError")  # fmt: skip


__all__ = ["VERSION", "Core"]

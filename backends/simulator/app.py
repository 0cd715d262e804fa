"""The simulated server: which path does what."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import uuid4

import orjson
from pydantic import TypeAdapter, ValidationError

from backends.settings import Precision, SimulatorSettings
from backends.simulator import text, tokens
from backends.simulator.answers import Answer, Rules, make
from backends.simulator.chat import ChatPlain, ChatStream
from backends.simulator.delivery import Delivery
from backends.simulator.errors import RequestError, model_error, too_long_error, validation_error
from backends.simulator.faults import GENERATION_PATHS, Fault, Faults
from backends.simulator.http import Exchange, Server
from backends.simulator.metrics import Asked, EngineMetrics, Exposition
from backends.simulator.prompts import render_chat
from backends.simulator.requests import ChatRequest, Sampling, check_sampling, load, parse, precheck_chat
from backends.simulator.runner import Runner, build_engine

VERSION = "0.32.0"
"""The version of vLLM whose format this is."""


class Simulator:
    """One simulated vLLM server of one model at one precision."""

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
        self.server = Server(self.handle)
        self.seen = 0
        self.in_flight = 0
        self.started = int(time.time())
        digest = sha256(f"{model} {precision} {settings!r}".encode()).hexdigest()[:8]
        self.fingerprint = f"vllm-{VERSION}-{digest}"
        self._exposition = Exposition(self.metrics)
        self._routes: dict[str, tuple[str, Callable[[Exchange], Awaitable[None] | None]]] = {
            "/v1/chat/completions": ("POST", self._chat),
            "/v1/models": ("GET", self._models),
            "/health": ("GET", lambda exchange: exchange.send(200, b"", None)),
            "/ping": ("GET", lambda exchange: exchange.send(200, b"", None)),
            "/version": ("GET", lambda exchange: exchange.send(200, b'{"version":"%b"}' % VERSION.encode())),
            "/load": ("GET", lambda exchange: exchange.send(200, b'{"server_load":%d}' % self.in_flight)),
            "/metrics": ("GET", self._metrics),
            "/sim/faults": ("POST", self._set_faults),
            "/sim/state": ("GET", self._state),
        }

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request."""
        method, route = self._routes.get(exchange.path, ("", None))
        if route is None:
            return exchange.send(404, b'{"detail":"Not Found"}')
        if exchange.method != method and not (exchange.path == "/ping" and exchange.method == "POST"):
            return exchange.send(405, b'{"detail":"Method Not Allowed"}', headers=(("allow", method),))
        try:
            result = route(exchange)
            if result is not None:
                await result
        except RequestError as error:
            exchange.send(error.status, error.body(), headers=error.headers)
        return None

    def _chat(self, exchange: Exchange) -> None:
        data = load(exchange.body)
        precheck_chat(data)
        request = parse(ChatRequest, data)
        model = self._check_model(request.model)
        prompt = render_chat(request.messages, request.tools, generate=request.add_generation_prompt)
        limit, name = (
            (request.max_completion_tokens, "max_completion_tokens")
            if request.max_completion_tokens is not None
            else (request.max_tokens, "max_tokens")
        )
        prompt_tokens = tokens.count(prompt)
        rules = self._rules(request, prompt_tokens, limit, name)
        fault = self._fault(exchange)
        if fault is not None and fault.kind in ("hang", "drop"):
            return
        answers = [self._prose(prompt, request, rules, index) for index in range(request.choices)]
        kind = ChatStream if request.stream else ChatPlain
        delivery = kind(
            exchange,
            self.runner,
            fault,
            request=request,
            model=model,
            fingerprint=self.fingerprint,
            prompt=prompt,
            request_id=self._request_id(exchange),
            echo="",
        )
        self._begin(delivery, answers, [prompt_tokens], rules)

    def _prose(self, prompt: str, request: Sampling, rules: Rules, index: int) -> Answer:
        seed = text.seed_of(self.settings.seed, self.precision, prompt, request.seed, index)
        source = text.answer(seed, self.precision, chinese=text.is_chinese(prompt))
        return make(source, text.natural_length(seed, self.settings.mean_output_tokens), rules, seed)

    def _rules(self, request: Sampling, prompt_tokens: int, limit: int | None, name: str) -> Rules:
        """What ends the answers. Raises RequestError where vLLM refuses."""
        longest = self.settings.max_model_len
        check_sampling(request, limit, longest, name)
        # one token must fit behind the prompt
        if prompt_tokens + 1 > longest:
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

    def _begin(self, delivery: Delivery, answers: list[Answer], prompts: list[int], rules: Rules) -> None:
        self.metrics.asked(Asked(len(answers) // len(prompts), rules.max_tokens))
        self.in_flight += 1
        delivery.ended = self._one_less
        try:
            delivery.begin(answers, prompts)
        except RequestError:
            self.in_flight -= 1
            raise

    def _one_less(self) -> None:
        self.in_flight -= 1

    def _fault(self, exchange: Exchange) -> Fault | None:
        """The fault that strikes this request; those that strike before any token do so here."""
        self.seen += 1
        fault = self.faults.strike(len(self.engine.waiting))
        if fault is None:
            return None
        retry = () if fault.retry_after is None else (("retry-after", f"{fault.retry_after:g}"),)
        if fault.kind == "status":
            raise RequestError("Simulated failure", status=fault.status, kind="InternalServerError", headers=retry)
        if fault.kind == "reject":
            self.metrics.rejected += 1
            raise RequestError("Simulated queue is full", status=503, kind="ServiceUnavailableError", headers=retry)
        if fault.kind == "drop":
            exchange.reset()
        return fault

    def _check_model(self, name: str | None) -> str:
        if name is None or name == "":
            return self.model
        if name not in self.names:
            raise model_error(name, self.names)
        return name

    def _request_id(self, exchange: Exchange) -> str:
        return exchange.headers.get("x-request-id") or uuid4().hex[:16]

    def _models(self, exchange: Exchange) -> None:
        exchange.send(200, orjson.dumps({"object": "list", "data": [self._card(name) for name in self.names]}))

    def _card(self, name: str) -> dict[str, Any]:
        permission = {
            "id": f"modelperm-{sha256(name.encode()).hexdigest()[:16]}",
            "object": "model_permission",
            "created": self.started,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        return {
            "id": name,
            "object": "model",
            "created": self.started,
            "owned_by": "bitgear-simulator",
            "root": f"simulated/{self.model}-{self.precision}",
            "parent": None,
            "max_model_len": self.settings.max_model_len,
            "permission": [permission],
        }

    def _metrics(self, exchange: Exchange) -> None:
        exchange.send(200, self._exposition.page(), "text/plain; version=1.0.0; charset=utf-8")

    def _set_faults(self, exchange: Exchange) -> None:
        data = load(exchange.body)
        try:
            faults = TypeAdapter(list[Fault]).validate_python(data if isinstance(data, list) else [data])
        except ValidationError as error:
            raise validation_error([dict(item) for item in error.errors(include_url=False)]) from None
        self.faults.replace(faults)
        exchange.send(200, orjson.dumps({"faults": [fault.model_dump() for fault in faults]}))

    def _state(self, exchange: Exchange) -> None:
        exchange.send(200, orjson.dumps(self.state()))

    def state(self) -> dict[str, int | float]:
        """Counts of this moment and since the start."""
        return {
            "running": len(self.engine.running),
            "waiting": len(self.engine.waiting),
            "kv_usage": self.engine.kv_usage,
            "connections": len(self.server.connections),
            "in_flight": self.in_flight,
            "requests": self.seen,
            "finished": sum(self.metrics.finished[reason] for reason in ("stop", "length")),
            "aborted": self.metrics.finished["abort"],
            "struck": self.faults.struck,
            "prompt_tokens": self.engine.counts.prompt_tokens,
            "generation_tokens": self.engine.counts.generation_tokens,
        }


@dataclass(frozen=True)
class Running:
    """A simulator that serves."""

    url: str
    """Base URL, without `/v1`."""
    simulator: Simulator


@asynccontextmanager
async def serving(simulator: Simulator, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Running]:
    """Serve until left."""
    bound = await simulator.server.listen(host, port)
    stepping = asyncio.get_running_loop().create_task(simulator.runner.run())
    try:
        yield Running(f"http://{host}:{bound}", simulator)
    finally:
        await simulator.server.close()
        stepping.cancel()
        await asyncio.gather(stepping, return_exceptions=True)


@asynccontextmanager
async def simulated(
    settings: SimulatorSettings | None = None,
    *,
    model: str = "simulated",
    precision: Precision = "fp16",
    aliases: Iterable[str] = (),
) -> AsyncIterator[str]:
    """A simulator in this process and loop, for tests: its base URL, without `/v1`."""
    simulator = Simulator(settings or SimulatorSettings(), model=model, precision=precision, aliases=tuple(aliases))
    async with serving(simulator) as running:
        yield running.url


__all__ = ["VERSION", "Running", "Simulator", "serving", "simulated"]

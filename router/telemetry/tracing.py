"""OpenTelemetry traces: one server span a request, one client span an attempt, W3C trace context through to the replica.

Names follow OpenTelemetry's semantic conventions for generative AI (`gen_ai.*`, in development at the time of writing)
and for HTTP; what only Bitgear knows is called `bitgear.*`. No span holds a word of a prompt or an answer.
The packages of the extra `otel` are imported only when an endpoint is configured.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from router.config.telemetry import TracingConfig
from router.proxy.outcome import Outcome

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

_OPERATIONS = {
    "chat.completions": "chat",
    "responses": "chat",
    "messages": "chat",
    "completions": "text_completion",
    "embeddings": "embeddings",
}
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_CLOSE_S = 3.0
Headers = list[tuple[bytes, bytes]]


class TracingSetupError(RuntimeError):
    """Traces are configured and cannot be made; the message says what is missing."""


class Tracing:
    """Makes the traces of one worker; a thread of the SDK's sends them in batches from a bounded queue."""

    def __init__(self, config: TracingConfig, headers: Mapping[str, str], exporter: SpanExporter | None = None) -> None:
        """Raises TracingSetupError without the packages. `exporter` takes the place of OTLP's."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
            from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as error:
            raise TracingSetupError(
                f"tracing.endpoint is set, but {error.name} is not installed: pip install 'bitgear[otel]'"
            ) from None
        self.kinds, self.error, self._in_context = SpanKind, Status(StatusCode.ERROR), set_span_in_context
        self._propagator = TraceContextTextMapPropagator()
        self._counts = counts = _Counts(
            exporter or OTLPSpanExporter(config.endpoint, headers=dict(headers), timeout=config.timeout_s)
        )
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(config.sample)),
            resource=Resource.create({"service.name": config.service}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                cast("SpanExporter", counts), max_queue_size=config.queue, max_export_batch_size=min(512, config.queue)
            )
        )
        self._tracer = self._provider.get_tracer("bitgear")
        # Spans speak of wall time, outcomes of the loop's clock.
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def wall_ns(self, seconds: float) -> int:
        """Return a moment of the loop's clock as Unix time, nanoseconds."""
        return int(seconds * 1e9) + self._offset_ns

    def begin(self, headers: Headers, outcome: Outcome, method: str) -> Trace:
        """Return the trace of one request, below the client's span where it sent one."""
        carrier = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in headers
            if name in (b"traceparent", b"tracestate")
        }
        context = self._propagator.extract(carrier) if carrier else None
        operation = _OPERATIONS.get(outcome.endpoint.name, outcome.endpoint.name)
        span = self._tracer.start_span(
            operation,
            context,
            kind=self.kinds.SERVER,
            attributes={"http.request.method": method if method in _METHODS else "_OTHER"},
            start_time=self.wall_ns(outcome.began),
        )
        return Trace(self, span, operation)

    def child(self, parent: Span, name: str, attributes: Mapping[str, Any], began: float) -> Span:
        """Start a client span below another."""
        return self._tracer.start_span(
            name,
            self._in_context(parent),
            kind=self.kinds.CLIENT,
            attributes=dict(attributes),
            start_time=self.wall_ns(began),
        )

    def inject(self, span: Span) -> Headers:
        """Return the headers that make a server's span a child of this one."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._in_context(span))
        return [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in carrier.items()]

    def counts(self) -> tuple[int, int]:
        """Return how many spans were sent, and how many could not be."""
        return self._counts.sent, self._counts.failed

    async def close(self) -> None:
        """Send what is kept, for at most some seconds."""
        # A daemon: a collector that hangs must not keep the worker from ending.
        thread = threading.Thread(target=self._provider.shutdown, daemon=True)
        thread.start()
        await asyncio.to_thread(thread.join, _CLOSE_S)


class Trace:
    """One request's spans."""

    __slots__ = ("_attempt", "_operation", "_span", "_tracing")

    def __init__(self, tracing: Tracing, span: Span, operation: str) -> None:
        self._tracing, self._span, self._operation = tracing, span, operation
        self._attempt: Span | None = None

    def attempt(self, outcome: Outcome, headers: Headers) -> Headers:
        """Begin the span of one attempt; return its request's headers with the context in the client's place."""
        variant, replica = outcome.variant, outcome.replica
        attributes: dict[str, Any] = {}
        if self._span.is_recording() and variant is not None and replica is not None:
            url = urlsplit(replica.url)
            attributes = {
                "gen_ai.operation.name": self._operation,
                "gen_ai.provider.name": "vllm" if variant.spec.kind != "litellm" else "litellm",
                "gen_ai.request.model": variant.spec.served_model,
                "server.address": url.hostname or "",
                "server.port": url.port or (443 if url.scheme == "https" else 80),
                "bitgear.variant": variant.name,
                "bitgear.replica": replica.index,
                "bitgear.attempt": outcome.attempts,
            }
        served = f" {variant.spec.served_model}" if variant is not None else ""
        self._attempt = self._tracing.child(self._span, self._operation + served, attributes, time.monotonic())
        kept = [h for h in headers if h[0] not in (b"traceparent", b"tracestate")]
        return kept + self._tracing.inject(self._attempt)

    def attempt_failed(self, why: str) -> None:
        """End the attempt's span: another replica may take over."""
        if self._attempt is not None:
            self._attempt.set_attribute("error.type", why)
            self._attempt.set_status(self._tracing.error)
            self._attempt.end()
            self._attempt = None

    def finish(self, outcome: Outcome) -> None:
        """End the spans, with all that is known of the request."""
        end = self._tracing.wall_ns(outcome.ended)
        if self._span.is_recording():
            self._tell(outcome)
        if self._attempt is not None:
            self._attempt.end(end)
        self._span.end(end)

    def _tell(self, outcome: Outcome) -> None:
        span, attempt, usage, status = self._span, self._attempt, outcome.usage, outcome.status
        told: dict[str, Any] = {
            "gen_ai.operation.name": self._operation,
            "gen_ai.provider.name": "bitgear",
            "http.response.status_code": status,
            "bitgear.request_id": outcome.request_id,
            "bitgear.endpoint": outcome.endpoint.name,
            "bitgear.attempts": outcome.attempts,
            "bitgear.stream": outcome.stream,
        }
        spans = [span] if attempt is None else [span, attempt]
        if outcome.group is not None:
            told["gen_ai.request.model"] = outcome.group.name
            told["bitgear.group"] = outcome.group.name
            span.update_name(f"{self._operation} {outcome.group.name}")
            span.add_event("cache.lookup", _cache(outcome), self._tracing.wall_ns(outcome.sent_up or outcome.ended))
        told.update(_decision(outcome))
        for one in spans:
            if usage is not None:
                one.set_attribute("gen_ai.usage.input_tokens", usage.prompt_tokens)
                one.set_attribute("gen_ai.usage.output_tokens", usage.completion_tokens)
            if outcome.first_token_at is not None:
                one.add_event("first_token", timestamp=self._tracing.wall_ns(outcome.first_token_at))
            if outcome.error is not None:
                one.set_attribute("error.type", str(status) if status >= 400 else "broken_stream")
                if status >= 500 or status < 400:
                    # A client's own mistake is no error of the server.
                    one.set_status(self._tracing.error)
        span.set_attributes(told)
        if attempt is not None:
            attempt.set_attribute("http.response.status_code", status)
            if outcome.variant is not None:
                attempt.set_attribute("gen_ai.response.model", outcome.variant.spec.served_model)


def _cache(outcome: Outcome) -> dict[str, Any]:
    told: dict[str, Any] = {"result": outcome.cache}
    if outcome.cache == "hit":
        told["age_s"] = outcome.cache_age_s
    if outcome.cache_likeness is not None:
        told["likeness"] = outcome.cache_likeness
    return told


def _decision(outcome: Outcome) -> dict[str, Any]:
    decision, variant = outcome.decision, outcome.variant
    if decision is None:
        return {}
    told: dict[str, Any] = {
        "bitgear.risk": decision.risk,
        "bitgear.threshold": decision.threshold,
        "bitgear.reason": decision.reason,
        "bitgear.propensity": decision.propensity,
        "bitgear.scenario": decision.scenario,
        "bitgear.policy": decision.version,
    }
    if variant is not None:
        told["bitgear.variant"] = variant.name
        told["bitgear.precision"] = variant.spec.precision
        told["gen_ai.response.model"] = variant.spec.pinned
    return told


class _Counts:
    """An exporter that counts, in front of another; called by the SDK's one thread."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.sent = self.failed = 0

    def export(self, spans: Sequence[Any]) -> Any:
        result = self._exporter.export(spans)
        if result.name == "SUCCESS":
            self.sent += len(spans)
        else:
            self.failed += len(spans)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def build_tracing(config: TracingConfig, env: Mapping[str, str]) -> Tracing | None:
    """Return the worker's traces; None where no endpoint is configured. Raises TracingSetupError."""
    if config.endpoint is None:
        return None
    headers = {}
    for pair in (env.get(config.headers_env, "") if config.headers_env else "").split(","):
        name, equals, value = pair.partition("=")
        if equals:
            headers[name.strip()] = value.strip()
    return Tracing(config, headers)


__all__ = ["Trace", "Tracing", "TracingSetupError", "build_tracing"]

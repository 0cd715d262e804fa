"""Settings of what is told of requests: cost, log lines, traces, watching for drift."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from backends.settings import Settings


class CostConfig(Settings):
    """What a second of a GPU costs; from it come the cost of each answer and what was saved against full precision."""

    currency: str = Field("USD", pattern=r"^[A-Z]{3}$", description="Currency of every amount of money (ISO 4217).")
    gpu_hour: float | None = Field(
        None,
        ge=0,
        description="Price of one GPU for one hour, in `currency`. None: GPU-seconds are counted, money is not.",
    )


class LoggingConfig(Settings):
    """Log lines of the proxy's workers, on standard error. Never a prompt or a key."""

    format: Literal["text", "json"] = Field("text", description="text: for people; json: one object a line.")
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is written.")
    access: bool = Field(False, description="One line for each request, not only for those that fail.")


class TracingConfig(Settings):
    """OpenTelemetry traces, sent as OTLP over HTTP; they need `pip install 'bitgear[otel]'`."""

    endpoint: str | None = Field(
        None, description="URL that takes traces, for example http://collector:4318/v1/traces. None: no traces."
    )
    sample: float = Field(
        0.1, ge=0, le=1, description="Share of requests that are traced where the client's traceparent does not decide."
    )
    queue: int = Field(2048, ge=64, description="Spans kept in memory until they are sent; more are dropped.")
    timeout_s: float = Field(10.0, gt=0, description="Longest wait for the collector, seconds.")
    service: str = Field("bitgear", min_length=1, description="Name of the service in the traces.")
    headers_env: str | None = Field(
        None, description="Environment variable with headers for the collector: name=value pairs, a comma between them."
    )

    @field_validator("endpoint")
    @classmethod
    def _scheme(cls, endpoint: str | None) -> str | None:
        if endpoint is not None and not endpoint.startswith(("http://", "https://")):
            raise ValueError("endpoint is not an http:// or https:// URL")
        return endpoint


class DriftConfig(Settings):
    """Which requests are compared, and over how long."""

    one_in: int = Field(20, ge=0, description="One request in so many is compared; 0: none.")
    window_s: float = Field(3600, ge=60, description="How much traffic one comparison covers, seconds.")


__all__ = ["CostConfig", "DriftConfig", "LoggingConfig", "TracingConfig"]

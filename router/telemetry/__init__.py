"""Metrics, events and log lines."""

from router.telemetry.metrics import Metrics
from router.telemetry.telemetry import Sink, Telemetry, event_of

__all__ = ["Metrics", "Sink", "Telemetry", "event_of"]

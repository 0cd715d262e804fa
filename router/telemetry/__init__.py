"""Metrics, events and log lines."""

from router.telemetry.metrics import EventCounts, Metrics, Window
from router.telemetry.telemetry import Sink, Telemetry, event_of

__all__ = ["EventCounts", "Metrics", "Sink", "Telemetry", "Window", "event_of"]

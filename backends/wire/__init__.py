"""Talking HTTP/1.1 to the servers of a variant."""

from backends.wire.connection import Connection, Limits
from backends.wire.errors import Failure, UpstreamError
from backends.wire.pool import Pool
from backends.wire.probe import ProbeResult, probe
from backends.wire.vllm_metrics import VllmMetrics, parse_vllm_metrics

__all__ = [
    "Connection",
    "Failure",
    "Limits",
    "Pool",
    "ProbeResult",
    "UpstreamError",
    "VllmMetrics",
    "parse_vllm_metrics",
    "probe",
]

"""Which fields of the configuration may change while Bitgear runs, and why the others may not."""

from __future__ import annotations

LIVE = (
    "server.max_body_mib",
    "server.max_concurrent",
    "timeouts",
    "breaker",
    "health",
    "scenarios",
    "thresholds",
    "balancer",
    "events.max_length",
    "events.buffer",
    "events.max_per_s",
    "cache.requests",
    "cache.ttl_s",
    "cache.ttl_jitter",
    "cache.max_request_kib",
    "cache.max_entry_kib",
    "cache.compress_above_bytes",
    "cache.single_flight",
    "cache.wait_s",
    "cache.lease_s",
    "feedback.enabled",
    "feedback.window_s",
    "feedback.max_length",
    "feedback.comment_chars",
    "feedback.regeneration_s",
    "exploration",
    "shadow",
    "tuning",
    "cost.gpu_hour",
    "logging",
    "drift",
    "policy",
    "policy_version",
    "groups",
)
"""Fields, and sections, that may change while Bitgear runs."""

FIXED = {
    "server": "sockets and worker processes are made at the start",
    "admin": "its socket and tokens are made at the start",
    "redis": "through it this very change would come",
    "classifier": "workers load it at the start; a group gets another one by `bitgear admin classifier set`",
    "events.enabled": "the connection for events is made at the start",
    "events.stream": "what was recorded would be left behind under the old name",
    "cache.enabled": "the cache's connection is made at the start",
    "cache.url": "the cache's connection is made at the start",
    "cache.timeout_ms": "the cache's connection is made at the start",
    "cache.encryption_key_env": "answers that are kept were encrypted with the old key",
    "cache.tenant_header": "answers and requests that are kept belong to tenants by the old header",
    "feedback.stream": "what was said would be left behind under the old name",
    "cost.currency": "amounts counted so far are in the old one",
    "tracing": "the exporter is made at the start",
    "local": "`bitgear up` reads it, at the start",
    "keys": "keys of the file are changed there; `bitgear admin keys` makes and revokes others at once",
}
"""All others, with the reason."""


def is_live(path: str) -> bool:
    """Return whether the field at a dotted path may change while Bitgear runs."""
    return any(_within(path, live) for live in LIVE)


def why_fixed(path: str) -> str:
    """Return why the field at a dotted path may not change while Bitgear runs; of the longest entry that holds it."""
    found = max((entry for entry in FIXED if _within(path, entry)), key=len, default=None)
    return FIXED[found] if found is not None else "it is read at the start alone"


def _within(path: str, entry: str) -> bool:
    return path == entry or path.startswith(f"{entry}.")


__all__ = ["FIXED", "LIVE", "is_live", "why_fixed"]

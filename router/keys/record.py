"""What is kept of an API key: never the key itself, only its digest."""

from __future__ import annotations

import hashlib
import secrets
from typing import Literal

from pydantic import Field

from backends.settings import Settings

PREFIX = "sk-bg-"


class KeyRecord(Settings):
    """One key."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the key, hexadecimal.")
    tenant: str = Field("", max_length=128, description="Who uses it, for people.")
    groups: tuple[str, ...] = Field((), description="Model groups that it may use; none: all.")
    scenario: Literal["realtime", "batch", "edge"] | None = Field(
        None, description="Scenario of its requests that name none. None: the group's."
    )
    cache: Literal["none"] | None = Field(
        None, description="none: its requests use no cache unless they say so. None: as configured."
    )
    requests_per_minute: float | None = Field(
        None,
        gt=0,
        description="Most requests a minute, of all workers that share a Redis together; above it the client gets 429. "
        "None: no limit.",
    )
    tokens_per_minute: int | None = Field(
        None,
        ge=1,
        le=10**12,
        description="Most prompt and generated tokens a minute, of all workers that share a Redis together; a request "
        "may be larger, and while what it cost is not paid back the client gets 429. None: no limit.",
    )
    max_concurrent: int | None = Field(
        None,
        ge=1,
        description="Most requests in flight, of all workers that share a Redis together; above it the client gets "
        "429. None: no limit.",
    )
    disabled: bool = Field(False, description="Refuse it.")
    expires: float | None = Field(None, description="Unix time from which on it is refused, seconds. None: never.")
    created: float = Field(0.0, ge=0, description="Unix time at which it was made, seconds.")


def new_key() -> tuple[str, str]:
    """Return a new key, to be shown once, and its digest."""
    key = PREFIX + secrets.token_urlsafe(32)
    return key, digest(key.encode())


def digest(key: bytes) -> str:
    """Return the SHA-256 of a key, hexadecimal. Keys are long and random: nothing slower is needed."""
    return hashlib.sha256(key).hexdigest()


__all__ = ["KeyRecord", "digest", "new_key"]

"""What workers share beyond their configuration file: changes to it, tuned thresholds, canaries. One versioned document."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from backends.settings import Precision, Settings
from router.keys.record import KeyRecord


class Canary(Settings):
    """Thresholds that a share of traffic tries."""

    share: float = Field(gt=0, le=1, description="Share of the group's requests.")
    thresholds: dict[Precision, float] = Field(description="Highest risk by precision, in [0, 1].")
    since: float = Field(description="Unix time at which it began, seconds.")
    job: str = Field("", description="Id of the tuning job that published it.")


class GroupTuning(Settings):
    """What tuning has set for one group; wins over the configuration's thresholds."""

    thresholds: dict[Precision, float] = Field(
        default_factory=dict, description="Highest risk by precision, in [0, 1]; missing ones as configured."
    )
    bounds: dict[Precision, tuple[float, float]] = Field(
        default_factory=dict,
        description="Lowest and highest threshold between which the inner loop may move with load; none: it rests.",
    )
    canary: Canary | None = Field(None, description="A change on trial.")
    paused: bool = Field(False, description="No job changes this group.")
    classifier: str = Field(
        "", pattern="^([0-9a-f]{64})?$", description="SHA-256 of the group's own classifier; empty: as configured."
    )


class ControlDocument(Settings):
    """One version. Version 0 is the configuration file alone."""

    format: int = Field(1, description="Version of this format; a newer one is refused.")
    version: int = Field(0, ge=0, description="Grows by one with each change.")
    base: int = Field(0, ge=0, description="Version that this one was made from.")
    at: float = Field(0.0, description="Unix time of the change, seconds.")
    by: str = Field("", description="Who changed it: a token's name, or `tuning`.")
    reason: str = Field("", description="Why.")
    config: dict[str, Any] = Field(
        default_factory=dict, description="JSON merge patch (RFC 7396) over the configuration file."
    )
    groups: dict[str, GroupTuning] = Field(default_factory=dict, description="Tuning by group.")
    keys: dict[str, KeyRecord] | None = Field(
        None, description="API keys made by the admin API, by name; once there was one, requests need a key."
    )
    drained: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="Replicas that take no new requests: their URLs by `group@variant`."
    )

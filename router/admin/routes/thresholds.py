"""Thresholds of a group, as set by hand."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, field_validator

from backends.settings import Precision
from router.admin.changes import ChangedView, change
from router.admin.context import Admin
from router.admin.problems import Problem
from router.control.document import ControlDocument, GroupTuning


class ThresholdsView(BaseModel):
    """A group's thresholds now: the highest risk by precision, in [0, 1]."""

    version: int
    effective: dict[str, float]
    tuned: dict[str, float] = Field(description="Of these, those that tuning or a person set over the configuration.")
    canary: dict[str, Any] | None = Field(description="Other thresholds on trial, and their share.")
    bounds: dict[str, tuple[float, float]] = Field(description="Between which the inner loop moves them with load.")
    paused: bool = Field(description="No tuning job changes this group.")


class ThresholdsOrder(BaseModel):
    """Thresholds to set; precisions left out go by the configuration again."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    thresholds: dict[Precision, float] = Field(description="Highest risk by precision, in [0, 1].")
    bounds: dict[Precision, tuple[float, float]] = Field(
        default_factory=dict,
        description="Lowest and highest threshold between which the inner loop moves them with load; none: it rests.",
    )
    reason: str = Field("", max_length=500)

    @field_validator("bounds")
    @classmethod
    def _ordered(cls, bounds: dict[Precision, tuple[float, float]]) -> dict[Precision, tuple[float, float]]:
        for precision, (low, high) in bounds.items():
            if not 0.0 <= low <= high <= 1.0:
                raise ValueError(f"bounds of {precision}: 0 <= lowest <= highest <= 1 is wanted")
        return bounds


def routes(admin: Admin) -> APIRouter:
    """Return the routes of this subject."""
    router = APIRouter(tags=["thresholds"])

    @router.get("/admin/groups/{name}/thresholds", summary="A group's thresholds", responses={404: {}})
    async def read(name: str) -> ThresholdsView:
        return thresholds_view(admin, name)

    @router.put(
        "/admin/groups/{name}/thresholds",
        summary="Set a group's thresholds, and the inner loop's bounds; a running canary and older bounds end",
        responses={404: {}, 412: {}, 422: {}},
    )
    async def replace(request: Request, name: str, order: ThresholdsOrder, dry_run: bool = False) -> ChangedView:
        thresholds_view(admin, name)

        def edit(document: ControlDocument) -> ControlDocument:
            old = document.groups.get(name, GroupTuning())
            # Bounds and canary were made for other thresholds than these.
            told = {"thresholds": order.thresholds, "bounds": order.bounds, "canary": None}
            tuning = old.model_copy(update=told)
            return document.model_copy(update={"groups": {**document.groups, name: tuning}})

        reason = order.reason or f"thresholds of {name} set by hand"
        return await change(admin, request, edit, reason=reason, dry_run=dry_run)

    return router


def thresholds_view(admin: Admin, name: str) -> ThresholdsView:
    """Return a group's thresholds as they hold. Raises Problem 404."""
    serving = admin.serving()
    group = serving.fleet.groups.get(name)
    if group is None:
        raise Problem(404, f"there is no group {name[:64]!r}")
    tuning = serving.document.groups.get(name, GroupTuning())
    return ThresholdsView(
        version=serving.document.version,
        effective=dict(group.thresholds),
        tuned={str(k): v for k, v in tuning.thresholds.items()},
        canary=tuning.canary.model_dump(mode="json") if tuning.canary is not None else None,
        bounds={str(k): v for k, v in tuning.bounds.items()},
        paused=tuning.paused,
    )

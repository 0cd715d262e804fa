"""Older versions: look, compare, go back to."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from router.admin.changes import ChangedView, ChangeView, change, store_of, told
from router.admin.context import Admin
from router.admin.problems import Problem
from router.config.show import redacted
from router.control.document import ControlDocument, GroupTuning

Number = Annotated[int, Path(ge=0, le=2**53)]


class VersionView(BaseModel):
    """One version, without what it says."""

    version: int
    base: int
    at: float = Field(description="Unix time, seconds.")
    by: str
    reason: str


class DocumentView(VersionView):
    """One version."""

    config: dict[str, Any] = Field(description="Merge patch over each machine's configuration file.")
    groups: dict[str, Any] = Field(description="Tuning by group.")
    drained: dict[str, list[str]] = Field(description="Drained replicas by variant.")


class RollbackOrder(BaseModel):
    """What to go back to."""

    model_config = ConfigDict(extra="forbid")

    version: int = Field(ge=0, le=2**53, description="0: the configuration file alone.")
    reason: str = Field("", max_length=500)


def routes(admin: Admin) -> APIRouter:
    """Return the routes of this subject."""
    router = APIRouter(tags=["versions"])

    async def find(number: int) -> ControlDocument:
        found = await store_of(admin).version(number)
        if found is None:
            raise Problem(404, f"version {number} is not kept")
        return found

    @router.get("/admin/versions", summary="The newest versions first")
    async def versions(limit: Annotated[int, Query(ge=1, le=500)] = 50) -> list[VersionView]:
        return [VersionView(**_head(d)) for d in await store_of(admin).history(limit)]

    @router.get("/admin/versions/{number}", summary="One version", responses={404: {}})
    async def version(number: Number) -> DocumentView:
        found = await find(number)
        told = redacted(found.model_dump(mode="json", include={"config", "groups", "drained"}))
        return DocumentView(**_head(found), **told)

    @router.get("/admin/versions/{number}/diff", summary="What another version says otherwise", responses={404: {}})
    async def diff(number: Number, to: Annotated[int, Query(ge=0, le=2**53)]) -> list[ChangeView]:
        return told(await find(number), await find(to))

    @router.post("/admin/rollback", summary="Make an older version the newest", responses={404: {}, 412: {}, 422: {}})
    async def rollback(request: Request, order: RollbackOrder, dry_run: bool = False) -> ChangedView:
        old = await find(order.version)

        def edit(document: ControlDocument) -> ControlDocument:
            # What was on trial then is no trial now; drained replicas, keys and pauses are the present's business.
            groups = {}
            for group in {**document.groups, **old.groups}:
                paused = document.groups.get(group, GroupTuning()).paused
                was = old.groups.get(group, GroupTuning()).model_copy(update={"canary": None, "paused": paused})
                if group in old.groups or paused:
                    groups[group] = was
            return document.model_copy(update={"config": old.config, "groups": groups})

        reason = order.reason or f"rollback to version {order.version}"
        return await change(admin, request, edit, reason=reason, dry_run=dry_run)

    return router


def _head(document: ControlDocument) -> dict[str, Any]:
    return document.model_dump(include={"version", "base", "at", "by", "reason"})

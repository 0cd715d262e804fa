"""Who changed what, and when."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from router.admin.changes import ChangeView, store_of
from router.admin.context import Admin
from router.config.show import redacted


class AuditView(BaseModel):
    """One entry of the audit log."""

    id: str
    at: float = Field(description="Unix time, seconds.")
    by: str
    action: str
    reason: str
    version: int | None = Field(description="The version that came of it.")
    diff: list[ChangeView]


def routes(admin: Admin) -> APIRouter:
    """Return the routes of this subject."""
    router = APIRouter(tags=["audit"])

    @router.get("/admin/audit", summary="The newest entries of the audit log first")
    async def audit(limit: Annotated[int, Query(ge=1, le=1000)] = 50) -> list[AuditView]:
        found = []
        for entry in await store_of(admin).audit(limit):
            row: dict[str, Any] = entry._asdict()
            told = [
                ChangeView(path=c.path, before=redacted(c.before), after=redacted(c.after)) for c in row.pop("changes")
            ]
            found.append(AuditView(diff=told, **row))
        return found

    return router

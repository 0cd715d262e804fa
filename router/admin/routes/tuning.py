"""Tuning jobs: look, start, pause, approve, reject."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from router.admin.changes import holder_of
from router.admin.context import Admin, TuningControl
from router.admin.problems import Problem
from router.control.store import Conflict

T = TypeVar("T")
Job = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.:-]+$")]


class JobOrder(BaseModel):
    """What to start."""

    model_config = ConfigDict(extra="forbid")

    group: str = Field(min_length=1, max_length=200)
    dry_run: bool = Field(False, description="Report only, change nothing.")
    kind: Literal["thresholds", "classifier"] = Field(
        "thresholds",
        description="What to look for: better thresholds, or a classifier retrained from pairs of answers.",
    )


def routes(admin: Admin) -> APIRouter:
    """Return the routes of this subject."""
    router = APIRouter(tags=["tuning"], prefix="/admin/tuning")

    def control() -> TuningControl:
        if admin.tuning is None:
            raise Problem(503, "tuning needs Redis, and there is none")
        return admin.tuning

    @router.get("", summary="Every group's tuning, its canary, and the last jobs")
    async def status() -> dict[str, Any]:
        return await _asked(control().status())

    @router.get("/jobs", summary="The newest jobs first")
    async def jobs(group: str | None = None, limit: Annotated[int, Query(ge=1, le=200)] = 20) -> list[dict[str, Any]]:
        return await _asked(control().jobs(group, limit))

    @router.post("/jobs", summary="Start a job now", responses={404: {}, 409: {}})
    async def start(request: Request, order: JobOrder) -> dict[str, Any]:
        return await _asked(control().start(order.group, holder_of(request), dry_run=order.dry_run, kind=order.kind))

    @router.get("/jobs/{job}", summary="One job and its report", responses={404: {}})
    async def report(job: Job) -> dict[str, Any]:
        return await _asked(control().report(job))

    @router.post(
        "/jobs/{job}/approve",
        summary="Put a proposed change on trial; one towards full precision holds at once",
        responses={404: {}, 409: {}},
    )
    async def approve(request: Request, job: Job) -> dict[str, Any]:
        return await _changed(control().approve(job, holder_of(request)))

    @router.post("/jobs/{job}/reject", summary="Refuse a proposed change", responses={404: {}, 409: {}})
    async def reject(request: Request, job: Job) -> dict[str, Any]:
        return await _changed(control().reject(job, holder_of(request)))

    @router.post("/groups/{group}/pause", summary="Keep jobs from changing a group", responses={404: {}, 409: {}})
    async def pause(request: Request, group: str) -> dict[str, Any]:
        return await _changed(control().pause(group, holder_of(request), paused=True))

    @router.post("/groups/{group}/resume", summary="Let jobs change a group again", responses={404: {}, 409: {}})
    async def resume(request: Request, group: str) -> dict[str, Any]:
        return await _changed(control().pause(group, holder_of(request), paused=False))

    async def _changed(call: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        answer = await _asked(call)
        await admin.look()
        return answer

    return router


async def _asked(call: Awaitable[T]) -> T:
    try:
        return await call
    except Conflict as conflict:
        raise Problem(409, f"{conflict}; try again") from None
    except Exception as error:
        status = getattr(error, "status", None)
        if not isinstance(status, int):
            raise
        raise Problem(status, str(error)) from None

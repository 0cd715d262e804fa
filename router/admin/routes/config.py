"""The effective configuration: look, replace, patch."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request, Response

from router.admin.changes import ChangedView, change, restored, with_config
from router.admin.context import Admin
from router.config.describe import at, nullable
from router.config.show import redacted
from router.control.apply import next_runtime, plain
from router.control.document import ControlDocument
from router.control.live import FIXED, LIVE
from router.control.merge import Path, merge

_ERRORS: dict[int | str, dict[str, Any]] = {
    412: {"description": "If-Match names another version"},
    422: {"description": "It cannot be applied; each problem names its field"},
    428: {"description": "If-Match is missing"},
    503: {"description": "Redis is away"},
}
WHEN = "$changes"
"""Beside the sections: which fields may change while Bitgear runs (`live`), and why others need a restart."""
DryRun = Annotated[bool, Query(description="Change nothing; return the difference and what it would have done.")]
Reason = Annotated[str, Query(max_length=500, description="Why, for the audit log.")]


def routes(admin: Admin) -> APIRouter:
    """Return the routes of this subject."""
    router = APIRouter(tags=["configuration"])

    @router.get("/admin/config", summary="Effective configuration; secrets are named, never shown")
    async def read(response: Response) -> dict[str, Any]:
        serving = admin.serving()
        response.headers["etag"] = f'"{serving.document.version}"'
        shown: dict[str, Any] = {key: redacted(value) for key, value in plain(serving.config).items()}
        return {**shown, WHEN: {"live": list(LIVE), "restart": FIXED}}

    @router.put("/admin/config", summary="Replace the configuration", responses=_ERRORS)
    async def replace(
        request: Request,
        response: Response,
        wanted: Annotated[dict[str, Any], Body()],
        dry_run: DryRun = False,
        reason: Reason = "",
    ) -> ChangedView:
        def edit(document: ControlDocument) -> ControlDocument:
            return with_config(admin, document, restored(_without(wanted), _effective(admin, document)))

        return _told(response, await change(admin, request, edit, reason=reason, required=True, dry_run=dry_run))

    @router.patch("/admin/config", summary="Lay a JSON merge patch (RFC 7396) on the configuration", responses=_ERRORS)
    async def patch(
        request: Request,
        response: Response,
        patch: Annotated[dict[str, Any], Body()],
        dry_run: DryRun = False,
        reason: Reason = "",
    ) -> ChangedView:
        def edit(document: ControlDocument) -> ControlDocument:
            effective = _effective(admin, document)
            wanted: dict[str, Any] = merge(effective, restored(_without(patch), effective), _keeps_null)
            return with_config(admin, document, wanted)

        return _told(response, await change(admin, request, edit, reason=reason, required=True, dry_run=dry_run))

    return router


def _without(given: dict[str, Any]) -> dict[str, Any]:
    # What was read may be put back as it is.
    return {key: value for key, value in given.items() if key != WHEN}


def _effective(admin: Admin, document: ControlDocument) -> dict[str, Any]:
    return plain(next_runtime(admin.base, document).config)


def _keeps_null(path: Path) -> bool:
    fragment = at(path)
    return fragment is not None and nullable(fragment)


def _told(response: Response, made: ChangedView) -> ChangedView:
    if not made.dry_run:
        response.headers["etag"] = f'"{made.version}"'
    return made

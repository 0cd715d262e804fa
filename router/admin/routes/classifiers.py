"""The classifier of a group: look, put in another one, go back to the configured one."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Body, Request
from pydantic import BaseModel, Field
from redis.exceptions import RedisError

from classifier.artefact import ArtefactError
from router.admin.changes import ChangedView, change
from router.admin.context import Admin
from router.admin.problems import Problem
from router.control.document import ControlDocument, GroupTuning


class ClassifierView(BaseModel):
    """What estimates a group's risks now."""

    version: str = Field(description="Name, date and the hash's first digits, as in decisions.")
    kind: str = Field(description="Kind of model.")
    sha256: str
    labels: str = Field(description="What its risks foretell.")
    own: bool = Field(description="Whether it was put in for this group.")
    thresholds: dict[str, float] = Field(description="Highest risk by precision that it recommends.")
    missing: str | None = Field(
        None, description="Why the one that was put in does not serve now, and this one does instead."
    )


def routes(admin: Admin) -> APIRouter:
    """Return the routes of this subject."""
    router = APIRouter(tags=["classifier"])
    path = "/admin/groups/{name}/classifier"

    @router.get(path, summary="A group's classifier", responses={404: {}})
    async def read(name: str) -> ClassifierView:
        return _view(admin, name)

    @router.put(
        path,
        summary="Give a group a classifier: the content of an artefact, as `bitgear calibrate` writes it",
        description="Thresholds, bounds and canary that were set for the old one end: they mean nothing on other risks.",
        responses={404: {}, 412: {}, 422: {}, 503: {}},
    )
    async def put(
        request: Request,
        name: str,
        artefact: Annotated[dict[str, Any], Body()],
        reason: str = "",
        dry_run: bool = False,
    ) -> ChangedView:
        _view(admin, name)
        used = [t.classifier for t in admin.serving().document.groups.values() if t.classifier]
        try:
            digest, found = await admin.artefacts.put(orjson.dumps(artefact), used, keep=not dry_run)
        except (ArtefactError, TypeError) as error:
            raise Problem(422, str(error)) from None
        except (RedisError, OSError, TimeoutError):
            raise Problem(503, "Redis is away: a classifier cannot be kept now") from None
        told = reason or f"classifier {found.artefact.version} put in for {name}"
        return await change(admin, request, _edit(name, digest), reason=told[:500], dry_run=dry_run)

    @router.delete(path, summary="Go back to the configured classifier", responses={404: {}, 412: {}, 503: {}})
    async def remove(request: Request, name: str, reason: str = "", dry_run: bool = False) -> ChangedView:
        _view(admin, name)
        told = reason or f"{name} goes back to the configured classifier"
        return await change(admin, request, _edit(name, ""), reason=told[:500], dry_run=dry_run)

    return router


def _edit(name: str, digest: str) -> Any:
    def edit(document: ControlDocument) -> ControlDocument:
        old = document.groups.get(name, GroupTuning())
        if old.classifier == digest:
            return document
        tuning = GroupTuning(classifier=digest, paused=old.paused)
        return document.model_copy(update={"groups": {**document.groups, name: tuning}})

    return edit


def _view(admin: Admin, name: str) -> ClassifierView:
    serving = admin.serving()
    if name not in serving.fleet.groups:
        raise Problem(404, f"there is no group {name[:64]!r}")
    found = serving.classifiers.get(name)
    artefact = (found or serving.classifier).artefact
    content = artefact.content
    return ClassifierView(
        version=artefact.version,
        kind=artefact.kind,
        sha256=str(content["sha256"]),
        labels=str(content.get("labels", "")),
        own=found is not None,
        thresholds=dict(content["thresholds"]["recommended"]),
        missing=serving.missing.get(name),
    )

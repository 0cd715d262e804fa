"""Groups and their variants: look, add, take out."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Request
from pydantic import BaseModel

from router.admin.changes import ChangedView, change, with_config
from router.admin.context import Admin
from router.admin.problems import Problem
from router.admin.routes.thresholds import ThresholdsView, thresholds_view
from router.control.apply import next_runtime, plain
from router.control.document import ControlDocument


class GroupView(BaseModel):
    """One model group."""

    name: str
    scenario: str
    variants: list[str]
    expected_output_tokens: float
    thresholds: ThresholdsView


def routes(admin: Admin) -> APIRouter:
    """Return the routes of this subject."""
    router = APIRouter(tags=["groups"])

    @router.get("/admin/groups", summary="Every model group")
    async def groups() -> list[GroupView]:
        return [_view(admin, name) for name in admin.serving().fleet.groups]

    @router.get("/admin/groups/{name}", summary="One model group", responses={404: {}})
    async def group(name: str) -> GroupView:
        return _view(admin, name)

    @router.post(
        "/admin/groups/{name}/variants",
        summary="Add a variant of running servers (the fields of `backends`)",
        responses={404: {}, 409: {}, 412: {}, 422: {}},
    )
    async def add(request: Request, name: str, backend: Annotated[dict[str, Any], Body()]) -> ChangedView:
        def edit(document: ControlDocument) -> ControlDocument:
            return with_backends(admin, document, name, [*backends_of(admin, document, name), backend])

        return await change(admin, request, edit, reason=f"variant added to {name}")

    @router.delete(
        "/admin/groups/{name}/variants/{variant}",
        summary="Take a variant out; its requests in flight finish",
        responses={404: {}, 409: {}, 412: {}, 422: {}},
    )
    async def remove(request: Request, name: str, variant: str) -> ChangedView:
        def edit(document: ControlDocument) -> ControlDocument:
            backends = backends_of(admin, document, name)
            kept = [b for b in backends if variant_name(b) != variant]
            if len(kept) == len(backends):
                raise Problem(404, f"{name[:64]!r} has no variant {variant[:64]!r}")
            return with_backends(admin, document, name, kept)

        return await change(admin, request, edit, reason=f"variant {variant} taken out of {name}")

    return router


def backends_of(admin: Admin, document: ControlDocument, group: str) -> list[dict[str, Any]]:
    """Return the backends of one group as they are effective. Raises Problem 404, 409."""
    config = next_runtime(admin.base, document).config
    if group not in config.groups:
        if group in admin.serving().fleet.groups:
            raise Problem(409, f"{group!r} stands in no configuration, only in the runtime file")
        raise Problem(404, f"there is no group {group[:64]!r}")
    return [b.model_dump(mode="json") for b in config.groups[group].backends]


def with_backends(
    admin: Admin, document: ControlDocument, group: str, backends: list[dict[str, Any]]
) -> ControlDocument:
    """Return the document in which a group has these backends."""
    wanted = plain(next_runtime(admin.base, document).config)
    wanted["groups"][group]["backends"] = backends
    return with_config(admin, document, wanted)


def variant_name(backend: dict[str, Any]) -> str:
    """Return the name of the variant that a backend is."""
    return str(backend.get("name") or backend.get("precision"))


def _view(admin: Admin, name: str) -> GroupView:
    thresholds = thresholds_view(admin, name)
    group = admin.serving().fleet.groups[name]
    return GroupView(
        name=name,
        scenario=group.scenario,
        variants=list(group.variants),
        expected_output_tokens=round(group.expected_output_tokens, 1),
        thresholds=thresholds,
    )

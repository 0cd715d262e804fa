"""Replicas of a variant: add, take out, drain."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from router.admin.changes import ChangedView, change
from router.admin.context import Admin
from router.admin.problems import Problem
from router.admin.routes.groups import backends_of, variant_name, with_backends
from router.config.variant import LAUNCHED, base_url
from router.control.document import ControlDocument

_PATH = "/admin/groups/{name}/variants/{variant}/replicas"


class ReplicaOrder(BaseModel):
    """Which replica."""

    model_config = ConfigDict(extra="forbid")

    url: str = Field(min_length=1, max_length=2000, description="Its base URL, without `/v1`.")


def routes(admin: Admin) -> APIRouter:
    """Return the routes of this subject."""
    router = APIRouter(tags=["replicas"])

    @router.post(_PATH, summary="Add a running server", responses={404: {}, 409: {}, 412: {}, 422: {}})
    async def add(request: Request, name: str, variant: str, order: ReplicaOrder) -> ChangedView:
        url = base_url(order.url)

        def edit(document: ControlDocument) -> ControlDocument:
            return _with_urls(admin, document, name, variant, add=url)

        return await change(admin, request, edit, reason=f"replica added to {name}@{variant}")

    @router.delete(
        _PATH,
        summary="Take a replica out; its requests in flight finish",
        responses={404: {}, 409: {}, 412: {}, 422: {}},
    )
    async def remove(
        request: Request, name: str, variant: str, url: Annotated[str, Query(min_length=1, max_length=2000)]
    ) -> ChangedView:
        def edit(document: ControlDocument) -> ControlDocument:
            return _with_urls(admin, document, name, variant, remove=base_url(url))

        return await change(admin, request, edit, reason=f"replica taken out of {name}@{variant}")

    @router.post(f"{_PATH}/drain", summary="Send a replica no new requests", responses={404: {}, 412: {}})
    async def drain(request: Request, name: str, variant: str, order: ReplicaOrder) -> ChangedView:
        return await _drain(admin, request, name, variant, base_url(order.url), drained=True)

    @router.post(f"{_PATH}/undrain", summary="Send a drained replica requests again", responses={404: {}, 412: {}})
    async def undrain(request: Request, name: str, variant: str, order: ReplicaOrder) -> ChangedView:
        return await _drain(admin, request, name, variant, base_url(order.url), drained=False)

    return router


async def _drain(admin: Admin, request: Request, group: str, variant: str, url: str, *, drained: bool) -> ChangedView:
    found = admin.serving().fleet.groups.get(group)
    replicas = found.variants[variant].replicas if found is not None and variant in found.variants else []
    if url not in [r.pool.base_url for r in replicas]:
        raise Problem(404, f"{group[:64]}@{variant[:64]} has no such replica")
    pinned = f"{group}@{variant}"

    def edit(document: ControlDocument) -> ControlDocument:
        others = [u for u in document.drained.get(pinned, ()) if u != url]
        urls = (*others, url) if drained else tuple(others)
        rest = {name: row for name, row in document.drained.items() if name != pinned}
        return document.model_copy(update={"drained": {**rest, pinned: urls} if urls else rest})

    return await change(admin, request, edit, reason=f"replica of {pinned} {'drained' if drained else 'back in use'}")


def _with_urls(
    admin: Admin,
    document: ControlDocument,
    group: str,
    variant: str,
    *,
    add: str | None = None,
    remove: str | None = None,
) -> ControlDocument:
    backends = backends_of(admin, document, group)
    found = next((b for b in backends if variant_name(b) == variant), None)
    if found is None:
        raise Problem(404, f"{group[:64]!r} has no variant {variant[:64]!r}")
    if found["kind"] in LAUNCHED:
        raise Problem(409, f"the servers of {group}@{variant} are started by `bitgear up`; drain them instead")
    urls = [base_url(u) for u in found["urls"]]
    if add is not None:
        if add in urls:
            raise Problem(409, f"{group}@{variant} has this replica already")
        urls.append(add)
    if remove is not None:
        if remove not in urls:
            raise Problem(404, f"{group}@{variant} has no such replica")
        urls.remove(remove)
    found["urls"] = urls
    return with_backends(admin, document, group, backends)

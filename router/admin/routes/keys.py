"""API keys of applications: make, look, change, revoke."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator

from router.admin.changes import change, store_of
from router.admin.context import Admin
from router.admin.problems import Problem
from router.control.document import ControlDocument
from router.keys.record import KeyRecord, new_key

Name = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]

PerMinute = Annotated[float | None, Field(gt=0)]
TokensPerMinute = Annotated[int | None, Field(ge=1, le=10**12)]
MaxConcurrent = Annotated[int | None, Field(ge=1, le=10**9)]


class KeyView(BaseModel):
    """One key, without the key."""

    name: str
    source: Literal["file", "api"] = Field(description="Where it is kept; those of the file are changed there.")
    tenant: str
    groups: list[str]
    scenario: str | None
    cache: str | None
    requests_per_minute: float | None
    tokens_per_minute: int | None
    max_concurrent: int | None
    disabled: bool
    expires: float | None
    created: float


class KeyOrder(BaseModel):
    """A key to make."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    name: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    tenant: str = Field("", max_length=128)
    groups: list[str] = Field(default_factory=list, max_length=1000)
    scenario: Literal["realtime", "batch", "edge"] | None = None
    cache: Literal["none"] | None = None
    requests_per_minute: PerMinute = None
    tokens_per_minute: TokensPerMinute = None
    max_concurrent: MaxConcurrent = None
    expires: float | None = Field(None, ge=0, le=1e12, description="Unix time, seconds.")


class KeyChange(BaseModel):
    """What to change of a key; what is left out stays. null: no such limit."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    disabled: bool = False
    requests_per_minute: PerMinute = None
    tokens_per_minute: TokensPerMinute = None
    max_concurrent: MaxConcurrent = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("nothing to change")
        return self

    def words(self) -> str:
        """Return what it does, for the audit."""
        changed = self.model_dump(exclude_unset=True)
        disabled = changed.pop("disabled", None)
        said = [] if disabled is None else ["disabled" if disabled else "enabled"]
        return ", ".join(
            [*said, *(f"{name} {'no limit' if v is None else f'{v:.15g}'}" for name, v in changed.items())]
        )


class MadeKey(BaseModel):
    """A new key: this is the only time that it is shown."""

    name: str
    key: str
    version: int


def routes(admin: Admin) -> APIRouter:
    """Return the routes of this subject."""
    router = APIRouter(tags=["keys"])

    @router.get("/admin/keys", summary="Every API key; the keys themselves are kept nowhere")
    async def keys() -> list[KeyView]:
        document = await store_of(admin).current() if admin.store is not None else ControlDocument()
        found = [_view(n, "file", r) for n, r in admin.base.config.keys.items()]
        return found + [_view(n, "api", r) for n, r in (document.keys or {}).items()]

    @router.post("/admin/keys", summary="Make an API key", status_code=201, responses={409: {}, 422: {}})
    async def make(request: Request, order: KeyOrder) -> MadeKey:
        key, sha256 = new_key()
        record = KeyRecord(sha256=sha256, created=round(time.time(), 3), **order.model_dump(exclude={"name"}))

        def edit(document: ControlDocument) -> ControlDocument:
            own = document.keys or {}
            if order.name in own or order.name in admin.base.config.keys:
                raise Problem(409, f"there is a key {order.name!r} already")
            return document.model_copy(update={"keys": {**own, order.name: record}})

        made = await change(admin, request, edit, reason=f"key {order.name} made")
        return MadeKey(name=order.name, key=key, version=made.version)

    @router.patch(
        "/admin/keys/{name}",
        summary="Change a key's limits, disable it, or enable it again",
        responses={404: {}, 409: {}},
    )
    async def alter(request: Request, name: Name, order: KeyChange) -> KeyView:
        found: list[KeyRecord] = []

        def edit(document: ControlDocument) -> ControlDocument:
            own = _own(admin, document, name)
            record = own[name].model_copy(update=order.model_dump(exclude_unset=True))
            found[:] = [record]
            return document.model_copy(update={"keys": {**own, name: record}})

        await change(admin, request, edit, reason=f"key {name}: {order.words()}")
        return _view(name, "api", found[0])

    @router.delete(
        "/admin/keys/{name}",
        summary="Revoke a key; without any key left nobody is served",
        responses={404: {}, 409: {}},
    )
    async def revoke(request: Request, name: Name) -> dict[str, Any]:
        def edit(document: ControlDocument) -> ControlDocument:
            own = _own(admin, document, name)
            return document.model_copy(update={"keys": {n: r for n, r in own.items() if n != name}})

        made = await change(admin, request, edit, reason=f"key {name} revoked")
        return {"name": name, "version": made.version}

    @router.delete("/admin/keys", summary="Revoke every key made here, and serve without keys again")
    async def open_again(request: Request) -> dict[str, Any]:
        def edit(document: ControlDocument) -> ControlDocument:
            return document.model_copy(update={"keys": None})

        made = await change(admin, request, edit, reason="every key revoked; requests need none")
        return {"version": made.version}

    return router


def _own(admin: Admin, document: ControlDocument, name: str) -> dict[str, KeyRecord]:
    if document.keys is not None and name in document.keys:
        return document.keys
    if name in admin.base.config.keys:
        raise Problem(409, f"the key {name!r} stands in the configuration file; change it there")
    raise Problem(404, f"there is no key {name!r}")


def _view(name: str, source: Literal["file", "api"], record: KeyRecord) -> KeyView:
    return KeyView(name=name, source=source, **record.model_dump(exclude={"sha256"}, mode="json"))

"""The cache: its state, and taking answers out of it."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field

from router.admin.changes import holder_of
from router.admin.context import Admin
from router.cache.link import Refusal
from router.cache.purge import Selection


class CacheView(BaseModel):
    """This worker's cache."""

    state: str = Field(description="off, starting, up, down or stopped.")
    writable: bool = Field(description="Redis took the last entry.")
    bytes_read: int
    bytes_written: int
    lookups_failed: int
    writes_failed: int
    connections_lost: int
    unreadable: int = Field(description="Entries that were broken, of another version, or encrypted otherwise.")


class PurgeOrder(BaseModel):
    """Which answers to take out: those for which all of these hold."""

    model_config = ConfigDict(extra="forbid")

    group: str | None = Field(None, description="Of this group.")
    tenant: str | None = Field(None, description="Of this tenant, as events name it.")
    credential: str | None = Field(None, description="Of the tenant who sends this header value.", min_length=1)
    key: str | None = Field(None, description="To this request, as its event names it.")
    older_than_s: float | None = Field(None, ge=0, description="Older than this, seconds.")
    everything: bool = Field(False, description="Must be true where nothing else is given.")


class Purged(BaseModel):
    """What was taken out."""

    purged: int


def routes(admin: Admin) -> APIRouter:
    """Return the routes of this subject."""
    router = APIRouter(tags=["cache"])

    @router.get("/admin/cache", summary="State of this worker's cache")
    async def cache() -> CacheView:
        return CacheView(**admin.serving().caching.stats()._asdict())

    @router.post("/admin/cache/purge", summary="Take answers out of the cache", responses={503: {}, 400: {}})
    async def cache_purge(request: Request, order: PurgeOrder) -> Purged:
        chosen = order.model_dump(exclude={"everything", "credential"})
        if not order.everything and order.credential is None and all(v is None for v in chosen.values()):
            raise HTTPException(400, "name what to take out, or set everything")
        try:
            purged = await admin.serving().caching.purge(Selection(**chosen), order.credential)
        except ValueError as error:
            raise HTTPException(400, str(error)) from None
        except (OSError, Refusal) as error:
            raise HTTPException(503, f"Redis: {error or type(error).__name__}") from None
        if admin.store is not None:
            # A tenant is a digest; the credential itself is never written down.
            told = [f"{k}={v}" for k, v in chosen.items() if v is not None] or ["everything"]
            await admin.store.note(holder_of(request), "purge", f"{purged} answers: {', '.join(told)}"[:500])
        return Purged(purged=purged)

    return router

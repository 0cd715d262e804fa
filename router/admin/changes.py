"""Making a new version of the control document: edit the current one, check it, publish it by compare-and-set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import Request
from pydantic import BaseModel, Field

from router.admin.auth import Holder
from router.admin.context import Admin
from router.admin.problems import Problem
from router.config.show import redacted
from router.control.apply import plain
from router.control.document import ControlDocument
from router.control.merge import changes, difference
from router.control.store import Conflict, ControlStore, content

Edit = Callable[[ControlDocument], ControlDocument]
_TRIES = 8


class ChangeView(BaseModel):
    """One place that a change touches."""

    path: str
    before: Any = None
    after: Any = None


class ChangedView(BaseModel):
    """What came of a change."""

    version: int = Field(description="The new version; of a dry run the one that it would be.")
    dry_run: bool = Field(False, description="Nothing was changed.")
    diff: list[ChangeView]
    effect: dict[str, Any] | None = Field(
        None,
        description="Of a dry run: what it would have changed for the last hour's decisions, where they are known.",
    )


def store_of(admin: Admin) -> ControlStore:
    """Return the store. Raises Problem 503 where there is none."""
    if admin.store is None:
        raise Problem(503, "there is no Redis: nothing can be changed while Bitgear runs")
    return admin.store


def holder_of(request: Request) -> str:
    """Return the name under which the caller is written into the audit log."""
    holder: Holder = request.state.holder
    return holder.name


def expected_version(request: Request, *, required: bool) -> int | None:
    """Return the version in `If-Match`; None where it is `*` or, unless required, absent. Raises Problem 428, 400."""
    given = request.headers.get("if-match")
    if given is None:
        if required:
            raise Problem(428, "send If-Match with the ETag of the version that you change, or *")
        return None
    text = given.strip().removeprefix("W/").strip('"')
    if text == "*":
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise Problem(412, f"If-Match: {given[:64]!r} is not the ETag of a version")
    return int(text)


async def change(
    admin: Admin, request: Request, edit: Edit, *, reason: str, required: bool = False, dry_run: bool = False
) -> ChangedView:
    """Publish the edited document; without If-Match a conflict is edited anew.

    A change of nothing makes no version: the present one comes back. Raises Problem 412 where If-Match names another version, BadDocument where it could not be applied: then nothing
    is changed.
    """
    store, by = store_of(admin), holder_of(request)
    expected = expected_version(request, required=required)
    for _ in range(_TRIES):
        current = await store.current()
        if current.version < admin.serving().document.version:
            # Redis came back without what is served; a change of that would take it away from everybody.
            await admin.look()
            current = await store.current()
        if expected is not None and current.version != expected:
            raise Problem(412, f"the current version is {current.version}, not {expected}")
        edited = edit(current).model_copy(update={"by": by, "reason": reason})
        if edited == current.model_copy(update={"by": by, "reason": reason}):
            # Nothing to publish: what was asked for is so already.
            return ChangedView(version=current.version, dry_run=dry_run, diff=[])
        await admin.check(edited.model_copy(update={"version": current.version + 1}))
        if dry_run:
            effect = await admin.effect(edited, 3600.0) if admin.effect is not None else None
            return ChangedView(version=current.version + 1, dry_run=True, diff=told(current, edited), effect=effect)
        try:
            made = await store.publish(edited, expected=current.version)
        except Conflict as conflict:
            if expected is not None:
                raise Problem(412, str(conflict)) from None
            continue
        except TypeError as error:
            raise Problem(422, f"the change cannot be written as JSON: {error}") from None
        except ValueError as error:
            raise Problem(413, str(error)) from None
        await admin.look()
        return ChangedView(version=made.version, diff=told(current, made))
    raise Problem(409, "others change the configuration all the time; try again")


def told(before: ControlDocument, after: ControlDocument) -> list[ChangeView]:
    """Return where two documents differ, secrets hidden."""
    rows = changes(redacted(content(before)), redacted(content(after)))
    return [ChangeView(path=c.path, before=c.before, after=c.after) for c in rows]


def with_config(admin: Admin, document: ControlDocument, wanted: dict[str, Any]) -> ControlDocument:
    """Return the document that makes `wanted` the effective configuration."""
    return document.model_copy(update={"config": difference(plain(admin.base.config), wanted)})


def restored(given: Any, old: Any) -> Any:
    """Return `given` with every hidden secret that was shown to the caller put back from `old`."""
    if isinstance(given, dict) and isinstance(old, dict):
        return {k: restored(v, old.get(k)) for k, v in given.items()}
    if isinstance(given, list) and isinstance(old, list) and len(given) == len(old):
        return [restored(g, o) for g, o in zip(given, old, strict=True)]
    if isinstance(given, str) and "***" in given and isinstance(old, str):
        return old
    return given

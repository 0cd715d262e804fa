"""Which variants to ask: those of a running proxy, or addresses given by hand."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from backends.settings import PRECISION_BITS
from router.calibration.sending import Target

if TYPE_CHECKING:
    from router.config.schema import GroupConfig

FULL = ("fp32", "fp16", "bf16")
"""Full precisions, the highest first."""


class TargetError(ValueError):
    """The variants cannot be told, or there is none to compare with."""


def from_admin(
    rows: Sequence[Mapping[str, Any]],
    group: str,
    settings: GroupConfig | None = None,
    env: Mapping[str, str] = os.environ,
) -> list[Target]:
    """Return a group's variants from the answer of `/admin/variants`; hosted ones are left out. Raises `TargetError`.

    `settings`: the group as configured, which names the environment variables of API keys, and revisions.
    """
    backends = {backend.variant: backend for backend in settings.backends} if settings is not None else {}
    found = []
    for row in rows:
        backend = backends.get(row["variant"])
        if row["group"] != group or row["kind"] == "litellm" or (backend is not None and backend.is_last_resort):
            continue
        urls = tuple(r["url"] for r in row["replicas"] if r.get("ready"))
        if not urls:
            raise TargetError(f"{group}@{row['variant']}: no replica is ready")
        key = env.get((backend.api_key_env if backend else None) or "") or None
        revision = (backend.revision if backend else None) or ""
        found.append(Target(row["variant"], row["precision"], urls, row["served_model"], key, revision))
    if not found:
        known = ", ".join(sorted({str(row["group"]) for row in rows})) or "none"
        raise TargetError(f"unknown group {group!r}; the proxy has: {known}")
    return found


def from_urls(given: Sequence[str], group: str) -> list[Target]:
    """Return variants from `variant=URL` texts; the variant's name is its precision, or ends in `-` and it.

    The servers must know the group's name as a model. Raises `TargetError`.
    """
    found: dict[str, Target] = {}
    for text in given:
        variant, sign, url = text.partition("=")
        precision = variant.rpartition("-")[2]
        if not sign or not url.startswith(("http://", "https://")) or precision not in PRECISION_BITS:
            raise TargetError(
                f"--url: found {text!r}, expected VARIANT=URL, where VARIANT is one of {', '.join(PRECISION_BITS)} "
                "or ends in it after a hyphen"
            )
        base = url.rstrip("/").removesuffix("/v1").rstrip("/")
        known = found.get(variant)
        urls = (*(known.urls if known else ()), base)
        found[variant] = Target(variant, precision, urls, group)
    return list(found.values())


def split(targets: Sequence[Target]) -> tuple[Target, list[Target]]:
    """Return full precision and the others, one for each lower precision. Raises `TargetError`."""
    full = min((t for t in targets if t.precision in FULL), key=lambda t: FULL.index(t.precision), default=None)
    if full is None:
        raise TargetError(f"no variant of full precision ({', '.join(FULL)}) to compare with")
    others = [t for t in targets if t.precision not in FULL]
    if not others:
        raise TargetError("no variant of a lower precision")
    return full, others

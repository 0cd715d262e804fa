"""Which weights answer: part of each key, so that an entry never outlives the weights that made it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from router.config.runtime import Runtime


def revisions(runtime: Runtime) -> Mapping[tuple[str, str | None], str]:
    """Return the identity of the weights behind each group (variant None) and each pinned variant.

    A group's changes with any of its variants'.
    """
    found: dict[tuple[str, str | None], str] = {}
    for group, variants in runtime.groups().items():
        rows: list[list[Any]] = []
        for v in variants:
            row = [v.variant, v.precision, v.kind, v.served_model, v.revision, v.last_resort]
            found[group, v.variant] = orjson.dumps(row).decode()
            rows.append(row)
        found[group, None] = orjson.dumps(sorted(rows, key=lambda r: str(r[0]))).decode()
    return found

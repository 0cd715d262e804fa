"""What stands in the feedback stream: one statement about one answer, as JSON in the field `feedback`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

FIELD = b"feedback"


def label_entry(
    event: Mapping[str, Any],
    source: str,
    value: float,
    at: float,
    *,
    key: str = "",
    reference: float | None = None,
    **more: Any,
) -> bytes:
    """Return the JSON of one label.

    `event` is the request's event, or its index entry. `source` as in `router.tuning.records.Label`; `value` and
    `reference` are qualities in [0, 1]; `at` is Unix time; `key` is the digest of who gave it. `more` is kept beside.
    """
    found: dict[str, Any] = {
        "id": event["id"],
        "t": event["t"],
        "tenant": event.get("tenant"),
        "group": event.get("group"),
        "variant": event.get("variant"),
        "policy": event.get("policy"),
        "arm": event.get("arm"),
        "propensity": event.get("propensity"),
        "source": source,
        "value": value,
        "at": round(at, 3),
        "key": key,
    }
    if reference is not None:
        found["reference"] = reference
    found.update({name: it for name, it in more.items() if it is not None})
    return orjson.dumps(found)

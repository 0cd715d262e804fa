"""Which fields may change while Bitgear runs: every field is on one list, with a reason where it may not."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from router.config.schema import Config
from router.control.live import FIXED, LIVE, is_live, why_fixed


def leaves(model: type[BaseModel], path: str = "") -> list[str]:
    found = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found += leaves(kind, f"{path}{name}.")
        else:
            found.append(path + name)
    return found


def test_every_field_is_live_or_has_a_reason() -> None:
    unsaid = "it is read at the start alone"
    assert [p for p in leaves(Config) if not is_live(p) and why_fixed(p) == unsaid] == []


def test_every_entry_names_a_field() -> None:
    known = leaves(Config)
    for entry in (*LIVE, *FIXED):
        assert any(path == entry or path.startswith(f"{entry}.") for path in known), entry


@pytest.mark.parametrize("path", ["server.port", "events.stream", "cache.url", "tracing.sample", "keys.app.tenant"])
def test_what_is_made_at_the_start_stays(path: str) -> None:
    assert not is_live(path)
    assert why_fixed(path) in FIXED.values()

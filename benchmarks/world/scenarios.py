"""Scenarios with other latency targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.config.schema import Config


def with_scenarios(config: Config | None = None, **scenarios: Mapping[str, Any]) -> Config:
    """Return a configuration with changed targets: `with_scenarios(realtime={"ttft_ms": 500, "e2e_ms": None})`."""
    base = config or Config()
    chosen = base.scenarios
    changed = {name: getattr(chosen, name).model_copy(update=dict(values)) for name, values in scenarios.items()}
    return base.model_copy(update={"scenarios": chosen.model_copy(update=changed)})

"""What `bitgear up` prints: plans before, the address and something to try after."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from backends.processes import VariantPlan
from router.config.runtime import RuntimeVariant

SIMULATED = "SIMULATED: no model runs here; the answers are made up by the simulator and mean nothing."


def plan_text(plans: Iterable[VariantPlan], *, commands: bool) -> str:
    """Which weights each variant takes, the arithmetic of its memory, and with `commands` what is started."""
    lines: list[str] = []
    for plan in plans:
        lines.append(f"{plan.group}@{plan.variant}: {plan.checkpoint}")
        lines.append(f"  memory: {plan.memory_gib:.1f} GiB ({plan.arithmetic})")
        for process in plan.processes if commands else ():
            environment = [f"{key}={shlex.quote(value)}" for key, value in process.env.items()]
            lines.append(f"  {' '.join([*environment, shlex.join(process.argv)])}")
    return "\n".join(lines)


def curl(api: str, model: str) -> str:
    """A request that works as it is pasted into a shell."""
    body = {"model": model, "messages": [{"role": "user", "content": "Why is the sky blue?"}], "max_tokens": 64}
    # A small model drawn at vLLM's own temperature of 1 rambles; and asked again, this answer comes from the cache.
    body["temperature"] = 0
    return f"curl -s {api}/v1/chat/completions -H 'content-type: application/json' -d {shlex.quote(json.dumps(body))}"


def banner(api: str, admin: str, variants: Sequence[RuntimeVariant], words: dict[str, str], logs: Path | None) -> str:
    """Addresses, groups and variants, a `curl` to try. `words` describe pinned names: their weights, their state.

    `logs`: folder of the workers' logs; None: they write to standard error.
    """
    lines = ["", f"Bitgear serves   {api}/v1", f"Admin            {admin}  (/docs, /metrics, /admin/variants)"]
    lines += [f"Logs             {logs or 'standard error'}", ""]
    groups = dict.fromkeys(v.group for v in variants)
    for group in groups:
        lines.append(f"{group}")
        lines += [f"  {v.pinned:<28} {words.get(v.pinned, '')}".rstrip() for v in variants if v.group == group]
    if any(v.simulated for v in variants):
        lines += ["", SIMULATED]
    lines += ["", "Try:", f"  {curl(api, next(iter(groups)))}", "", "Ctrl-C ends it."]
    return "\n".join(lines)


__all__ = ["SIMULATED", "banner", "curl", "plan_text"]

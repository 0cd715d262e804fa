"""`bitgear status`: the variants of a running proxy."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from router.cli.common import ConfigOption, table_console
from router.cli.operator import TokenOption, UrlOption, operator


def status(
    url: UrlOption = None,
    token: TokenOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the admin API's answer.")] = False,
    config: ConfigOption = None,
) -> None:
    """Print every variant's state: ready replicas, load, speed."""
    variants = operator(url, token, config).ask("GET", "/admin/variants")
    if as_json:
        import orjson

        typer.echo(orjson.dumps(variants, option=orjson.OPT_INDENT_2).decode())
        return
    _print(variants)


def _print(variants: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("variant", "kind", "ready", "running", "waiting", "KV use", "TTFT ms", "tokens/s", "last error")
    for one in variants:
        replicas = one.get("replicas", [])
        ready = sum(bool(r.get("ready")) for r in replicas)
        drained = sum(bool(r.get("draining")) for r in replicas)
        errors = [str(r["last_error"]) for r in replicas if r.get("last_error") and not r.get("ready")]
        kind = (
            f"{one.get('kind', '')}, simulated"
            if one.get("simulated") and one.get("kind") != "simulator"
            else one.get("kind")
        )
        row = [
            f"{one.get('group')}@{one.get('variant')}",
            str(kind),
            f"{ready}/{len(replicas)}" + (f", {drained} drained" if drained else ""),
            _sum(replicas, "running"),
            _sum(replicas, "waiting"),
            _most(replicas, "kv_cache_usage"),
            _number(one.get("ttft_ms")),
            _number(one.get("tokens_per_s_10s")),
            errors[0] if errors else "",
        ]
        table.add_row(*(Text(cell) for cell in row), style="" if ready else "yellow")
    table_console().print(table)


def _sum(replicas: list[dict[str, Any]], key: str) -> str:
    values = [r[key] for r in replicas if r.get(key) is not None]
    return f"{sum(values):g}" if values else "-"


def _most(replicas: list[dict[str, Any]], key: str) -> str:
    values = [r[key] for r in replicas if r.get(key) is not None]
    return f"{max(values):.0%}" if values else "-"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"

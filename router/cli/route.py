"""`bitgear route`: what would happen to a prompt, without sending it."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from router.cli.common import ConfigOption, ask, load_config, reachable, table_console


def route(
    prompt: Annotated[str, typer.Argument(help="The user's message.")],
    model: Annotated[str | None, typer.Option(help="Group, or pinned variant. Default: the first group.")] = None,
    scenario: Annotated[str | None, typer.Option(help="realtime, batch or edge. Default: the group's.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest answer, tokens.")] = None,
    key_env: Annotated[
        str, typer.Option(help="Environment variable with the API key, where Bitgear asks for one.")
    ] = "OPENAI_API_KEY",
    url: Annotated[str | None, typer.Option(help="Address of the API. Default: from the configuration.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the decision as JSON.")] = False,
    config: ConfigOption = None,
) -> None:
    """Ask a running proxy for its decision about a prompt: risks, thresholds, every variant's state, the reason."""
    if url is None:
        server = load_config(config).server
        url = reachable(server.host, server.port)
    base = url.rstrip("/").removesuffix("/v1")
    key = os.environ.get(key_env)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    if model is None:
        model = str(ask("GET", f"{base}/v1/models", headers=headers)["data"][0]["id"])
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": prompt}]}
    if max_tokens is not None:
        body["max_tokens"] = max_tokens
    if scenario:
        headers["x-bitgear-scenario"] = scenario
    decision = ask("POST", f"{base}/v1/route", body=body, headers=headers)
    if as_json:
        import orjson

        typer.echo(orjson.dumps(decision, option=orjson.OPT_INDENT_2).decode())
        return
    _print(decision.get("decision", decision))


def _print(decision: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    console = table_console()
    table = Table("variant", "risk", "threshold", "allowed", "in time", "TTFT ms", "answer ms", "cost", "live")
    for one in decision.get("candidates", ()):
        mark = "bold green" if one.get("variant") == decision.get("variant") else ""
        cells = [
            *(one.get("variant"), one.get("risk"), one.get("threshold"), one.get("allowed"), one.get("in_time")),
            *(one.get("ttft_ms"), one.get("e2e_ms"), one.get("cost"), one.get("live")),
        ]
        table.add_row(*(Text(_cell(cell)) for cell in cells), style=mark)
    console.print(table)
    for key in ("variant", "reason", "scenario", "policy_version"):
        if key in decision:
            console.print(Text(f"{key.replace('_', ' ')}: {_cell(decision[key])}"))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)

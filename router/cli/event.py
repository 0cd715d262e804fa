"""`bitgear events show`: everything that is recorded of one request."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from router.cli.common import BAD_INPUT, ConfigOption, fail, load_config, table_console
from router.cli.shared import shared_state

RedisOption = Annotated[
    str | None,
    typer.Option(
        "--redis",
        help="URL of the Redis with the events. Default: redis.url, otherwise that of the Bitgear that runs here.",
    ),
]
_FACTS = ("endpoint", "stream", "status", "error", "attempts", "group", "variant", "replica", "tenant")
_DECIDED = ("reason", "scenario", "policy", "arm", "explored", "propensity")
_MEASURED = ("prompt_tokens", "completion_tokens", "ttft_ms", "itl_ms", "e2e_ms", "cache", "cache_key", "cache_age_s")
_COLUMNS = ("variant", "live", "risk", "threshold", "TTFT s", "answer s", "precision", "rank", "fits", "last resort")


def show(
    request_id: Annotated[str, typer.Argument(help="The answer's x-request-id.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the events and labels as they are kept.")] = False,
    redis: RedisOption = None,
    config: ConfigOption = None,
) -> None:
    """Print one request's event: what was decided on what, what came of it, and what was said of its answer."""
    from router.replay.source import SourceError, about

    loaded = load_config(config)
    url, password = shared_state(loaded, redis)
    try:
        events = about(url, loaded.events.stream, "event", request_id, password=password)
        labels = about(url, loaded.feedback.stream, "feedback", request_id, password=password)
    except SourceError as error:
        fail(str(error), BAD_INPUT)
    if not events and not labels:
        fail(f"no event of {request_id!r} is kept: none was decided under this id, or it is older than the stream")
    if as_json:
        import orjson

        typer.echo(orjson.dumps({"events": events, "labels": labels}, option=orjson.OPT_INDENT_2).decode())
        return
    for event in events:
        _print(event)
    for label in labels:
        reference = f" (full precision {label['reference']:g})" if "reference" in label else ""
        typer.echo(f"{_when(label.get('at'))}  {label.get('source')}: {label.get('value'):g}{reference}")


def _print(event: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    console = table_console()
    console.print(Text(f"{_when(event.get('t'))}  {event.get('id')}", style="bold"))
    for names in (_FACTS, _DECIDED, _MEASURED):
        told = [f"{name}={_cell(event[name])}" for name in names if event.get(name) is not None]
        console.print(Text("  " + "  ".join(told)))
    table = Table(*_COLUMNS, "cost", "propensity")
    for row in event.get("candidates") or ():
        table.add_row(*(Text(_cell(value)) for value in row), style="bold" if row[0] == event.get("variant") else "")
    console.print(table)


def _when(at: object) -> str:
    if not isinstance(at, int | float):
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)

"""`bitgear replay` and `bitgear events`: recorded decisions, made anew under another configuration."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from router.cli.common import BAD_INPUT, ConfigOption, fail, load_config, table_console
from router.cli.event import RedisOption, show
from router.cli.shared import shared_state

if TYPE_CHECKING:
    from router.config.schema import Config
    from router.replay import Effect

events_app = typer.Typer(help="Events of decided requests.", no_args_is_help=True)
events_app.command("show")(show)

_Hours = Annotated[float | None, typer.Option(min=0, help="Only events of the last so many hours.")]


def replay(
    events: Annotated[
        Path | None, typer.Argument(help="File of `bitgear events export`. Default: the stream in Redis.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="Configuration file that decides anew. Default: the one of --config.")
    ] = None,
    group: Annotated[str | None, typer.Option(help="Only this model group's requests.")] = None,
    hours: _Hours = None,
    listed: Annotated[int, typer.Option("--list", min=0, help="How many moved requests are listed.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
    redis: RedisOption = None,
    config: ConfigOption = None,
) -> None:
    """Decide recorded requests anew under another configuration, and print what would change.

    Risks and the variants' state are the recorded ones; that moved traffic changes the state is not foretold.
    """
    from classifier import load
    from classifier.artefact import ArtefactError
    from router.replay import effect
    from router.replay.source import SourceError

    current = load_config(config)
    chosen = load_config(policy) if policy is not None else current
    try:
        recommended = load(chosen.classifier.model, chosen.classifier.artefact).thresholds
        files = {name: settings.classifier for name, settings in chosen.groups.items() if settings.classifier}
        own = {name: load(artefact=file).thresholds for name, file in files.items()}
        kept = _events(current, events, redis, hours)
        found = effect(kept, chosen, recommended, group=group, limit=listed, own=own)
    except (SourceError, ArtefactError) as error:
        fail(str(error), BAD_INPUT)
    if group is not None and not found.requests and not found.skipped:
        held = f"they hold {', '.join(found.other_groups)}" if found.other_groups else "there are no events"
        fail(f"no recorded request is of group {group!r}: {held}", BAD_INPUT)
    if as_json:
        import orjson

        typer.echo(orjson.dumps(found.as_json(), option=orjson.OPT_INDENT_2).decode())
        return
    _print(found)


@events_app.command("export")
def export(
    output: Annotated[Path, typer.Argument(help="File to write: JSON lines; gzipped where its name ends in .gz.")],
    hours: _Hours = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Most events.")] = None,
    redis: RedisOption = None,
    config: ConfigOption = None,
) -> None:
    """Write the recorded events into a file. They hold no prompts."""
    import gzip

    import orjson

    from router.replay.source import SourceError

    count = 0
    opener = gzip.open if output.suffix == ".gz" else open
    try:
        with opener(output, "wb") as file:
            for event in islice(_events(load_config(config), None, redis, hours), limit):
                file.write(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE))
                count += 1
    except SourceError as error:
        fail(str(error), BAD_INPUT)
    except OSError as error:
        fail(f"{output}: {error.strerror or error}", BAD_INPUT)
    typer.echo(f"{count} events written to {output}")


def _events(config: Config, file: Path | None, url: str | None, hours: float | None) -> Iterator[dict[str, Any]]:
    from router.replay.source import from_file, from_stream

    since = None if hours is None else time.time() - hours * 3600
    if file is not None:
        return _since(from_file(file), since)
    chosen, password = shared_state(config, url)
    return _since(from_stream(chosen, config.events.stream, password=password, since=since), since)


def _since(events: Iterable[dict[str, Any]], since: float | None) -> Iterator[dict[str, Any]]:
    for event in events:
        at = event.get("t")
        # An event without its time is damaged: whoever reads on counts it.
        if since is None or not isinstance(at, int | float) or at >= since:
            yield event


def _print(found: Effect) -> None:
    from rich.table import Table
    from rich.text import Text

    console = table_console()
    share = f" ({100 * found.moved / found.requests:.1f}%)" if found.requests else ""
    console.print(Text(f"{found.requests} requests decided anew, {found.moved} moved{share}"))
    for reason, count in found.skipped.items():
        console.print(Text(f"{count} events left out: {reason}"))
    if not found.requests:
        return
    means = Table("mean, as predicted then", "recorded", "anew")
    for name, unit, field in (
        ("first token", "s", "ttft_s"),
        ("whole answer", "s", "e2e_s"),
        ("tokens/s of an answer", "", "tokens_per_s"),
        ("cost", "", "cost"),
        ("risk", "", "risk"),
    ):
        means.add_row(
            f"{name}, {unit}" if unit else name,
            f"{getattr(found.before, field):.4g}",
            f"{getattr(found.after, field):.4g}",
        )
    for variant in sorted({*found.shares_before, *found.shares_after}):
        shares = (f"{100 * side.get(variant, 0.0):.1f}%" for side in (found.shares_before, found.shares_after))
        means.add_row(Text(f"share of {variant}"), *shares)
    console.print(means)
    if not found.moved:
        return
    moves = Table("moved", "requests")
    for name, count in found.moves.items():
        moves.add_row(Text(name), str(count))
    console.print(moves)
    if found.listed:
        each = Table("id", "group", "from", "to", "reason then", "reason now", "risk then", "risk now")
        for move in found.listed:
            cells = (
                move.id,
                move.group,
                move.before or "none",
                move.after or "none",
                move.reason_before,
                move.reason_after,
            )
            each.add_row(*map(Text, cells), f"{move.risk_before:.4f}", f"{move.risk_after:.4f}")
        console.print(each)

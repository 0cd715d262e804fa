"""`bitgear config check|show|schema`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from router.cli.common import ConfigOption, load_config

config_app = typer.Typer(
    help="The configuration: check a file, show what is in effect, print the schema.", no_args_is_help=True
)


@config_app.command("check")
def check(file: Annotated[Path, typer.Argument(help="File to check.")]) -> None:
    """Read a file as `bitgear up` would, and name every mistake by file, line and field."""
    config = load_config(file)
    variants = sum(len(group.backends) for group in config.groups.values())
    typer.echo(f"{file}: right ({len(config.groups)} groups, {variants} variants)")


@config_app.command("show")
def show(
    config: ConfigOption = None,
    commented: Annotated[
        bool, typer.Option("--commented", help="With each field's sentence, unit and bounds.")
    ] = False,
) -> None:
    """Print the effective configuration: defaults, the file, the environment's overrides. Secrets are hidden."""
    from router.config import show as text

    loaded = load_config(config)
    typer.echo(text.commented(loaded) if commented else text.plain(loaded), nl=False)


@config_app.command("schema")
def schema() -> None:
    """Print the JSON Schema of the configuration file."""
    import orjson

    from router.config import describe

    typer.echo(orjson.dumps(describe.schema(), option=orjson.OPT_INDENT_2).decode())

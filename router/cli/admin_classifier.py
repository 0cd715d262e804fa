"""`bitgear admin classifier`: the classifier of a group of a running Bitgear."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from router.cli.common import BAD_INPUT, ConfigOption, fail
from router.cli.operator import TokenOption, UrlOption, operator, print_changed

classifier_commands = typer.Typer(help="A group's classifier.", no_args_is_help=True)

GroupName = Annotated[str, typer.Argument(help="Name of the model group.")]
Reason = Annotated[str, typer.Option(help="Why, for the audit log.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing, print what would change.")]


@classifier_commands.command("show")
def show(group: GroupName, url: UrlOption = None, token: TokenOption = None, config: ConfigOption = None) -> None:
    """Print what estimates a group's risks now."""
    found = operator(url, token, config).ask("GET", _path(group))
    typer.echo(f"{found['version']}  {found['kind']}  {'own' if found['own'] else 'shared'}")
    if found["missing"]:
        typer.echo(f"  in place of the group's own: {found['missing']}")
    typer.echo(f"  {found['labels']}")
    for precision, threshold in found["thresholds"].items():
        typer.echo(f"  {precision:<6} up to risk {threshold:.4f}")


@classifier_commands.command("set")
def set_(
    group: GroupName,
    artefact: Annotated[Path, typer.Argument(help="File that `bitgear calibrate` wrote.")],
    reason: Reason = "",
    dry_run: DryRun = False,
    url: UrlOption = None,
    token: TokenOption = None,
    config: ConfigOption = None,
) -> None:
    """Give a group a classifier of its own, on all workers at once; its tuned thresholds end."""
    try:
        content = json.loads(artefact.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        fail(f"{artefact}: {error}", BAD_INPUT)
    path = f"{_path(group)}?dry_run={'true' if dry_run else 'false'}&reason={quote(reason, safe='')}"
    print_changed(operator(url, token, config).ask("PUT", path, body=content))


@classifier_commands.command("unset")
def unset(
    group: GroupName,
    reason: Reason = "",
    dry_run: DryRun = False,
    url: UrlOption = None,
    token: TokenOption = None,
    config: ConfigOption = None,
) -> None:
    """Go back to the configured classifier."""
    path = f"{_path(group)}?dry_run={'true' if dry_run else 'false'}&reason={quote(reason, safe='')}"
    print_changed(operator(url, token, config).ask("DELETE", path))


def _path(group: str) -> str:
    return f"/admin/groups/{quote(group, safe='')}/classifier"

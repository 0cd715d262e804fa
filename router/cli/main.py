"""`bitgear`: the commands, put together. Nothing heavy is imported before a command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from router.cli.admin import admin_app
from router.cli.cache import cache_app
from router.cli.calibrate import calibrate
from router.cli.classifier import classifier
from router.cli.config import config_app
from router.cli.feedback import feedback_app
from router.cli.quantize import quantize
from router.cli.replay import events_app, replay
from router.cli.route import route
from router.cli.serve import serve
from router.cli.status import status
from router.cli.tune import tune
from router.cli.up import up

app = typer.Typer(
    name="bitgear",
    help="One model, several precisions, one OpenAI-compatible address.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("up")(up)
app.command("serve")(serve)
app.command("quantize")(quantize)
app.command("route")(route)
app.command("status")(status)
app.command("tune")(tune)
app.command("replay")(replay)
app.add_typer(events_app, name="events")
app.command("calibrate")(calibrate)
app.add_typer(config_app, name="config")
app.add_typer(cache_app, name="cache")
app.add_typer(feedback_app, name="feedback")
app.add_typer(admin_app, name="admin")
app.command(
    "classifier",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(classifier)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"bitgear {version('bitgear')}")
        except PackageNotFoundError:
            typer.echo("bitgear (not installed)")
        raise typer.Exit


@app.callback()
def _main(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


if __name__ == "__main__":
    app()

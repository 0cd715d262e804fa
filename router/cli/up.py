"""`bitgear up`: plan the variants, start them and the proxy, end all of it together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from router.cli.common import BAD_INPUT, ConfigOption, fail, load_config

if TYPE_CHECKING:
    from router.config.schema import Config

PortOption = Annotated[int | None, typer.Option(min=0, max=65535, help="Port of the API. Default: server.port (8400).")]
AdminPortOption = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Port of the admin API. Default: admin.port (8401).")
]


def up(
    model: Annotated[str | None, typer.Option(help="Serve this model: a folder, a name, or a built-in.")] = None,
    precisions: Annotated[str | None, typer.Option(help="Its variants, for example fp16,int8,int4.")] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Simulated variants: seconds instead of minutes.")
    ] = False,
    config: ConfigOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and the exact commands, start nothing.")
    ] = False,
    port: PortOption = None,
    admin_port: AdminPortOption = None,
) -> None:
    """Start the model's variants and the proxy in front of them."""
    loaded = with_ports(load_config(config), port, admin_port)

    from backends.processes import PlanError
    from router.cli import launch

    try:
        groups = launch.resolve(loaded, model=model, precisions=precisions, simulate=simulate)
        if dry_run:
            typer.echo(launch.dry_run(groups))
            return
        code = launch.up(groups)
    except PlanError as error:
        fail(str(error), BAD_INPUT)
    raise typer.Exit(code)


def with_ports(config: Config, port: int | None, admin_port: int | None) -> Config:
    """`config` with the ports given on the command line."""
    server = config.server if port is None else config.server.model_copy(update={"port": port})
    admin = config.admin if admin_port is None else config.admin.model_copy(update={"port": admin_port})
    return config.model_copy(update={"server": server, "admin": admin})

"""`bitgear serve`: the proxy alone, in front of running servers."""

from __future__ import annotations

import typer

from router.cli.common import BAD_INPUT, ConfigOption, fail, load_config
from router.cli.up import AdminPortOption, PortOption, with_ports


def serve(config: ConfigOption = None, port: PortOption = None, admin_port: AdminPortOption = None) -> None:
    """Start only the proxy: every variant is given by the URLs of running servers."""
    loaded = with_ports(load_config(config), port, admin_port)

    from backends.processes import PlanError
    from router.cli import launch

    try:
        code = launch.serve(loaded)
    except PlanError as error:
        fail(str(error), BAD_INPUT)
    raise typer.Exit(code)

"""`bitgear cache`: state of the cache, and taking answers out of it."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from router.cli.common import BAD_INPUT, ConfigOption, fail
from router.cli.operator import TokenOption, UrlOption, operator

cache_app = typer.Typer(help="Answers kept in Redis.", no_args_is_help=True)


@cache_app.command("status")
def status(url: UrlOption = None, token: TokenOption = None, config: ConfigOption = None) -> None:
    """Print the state of one worker's cache."""
    found: dict[str, Any] = operator(url, token, config).ask("GET", "/admin/cache")
    for name, value in found.items():
        typer.echo(f"{name}: {value}")


@cache_app.command("purge")
def purge(
    group: Annotated[str | None, typer.Option(help="Only answers of this group.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's answers, as events name it.")] = None,
    credential_env: Annotated[
        str | None,
        typer.Option(help="Only the tenant of the header value in this environment variable ('Bearer sk-...')."),
    ] = None,
    key: Annotated[str | None, typer.Option(help="Only the answer to this request, as its event names it.")] = None,
    older_than: Annotated[float | None, typer.Option(min=0, help="Only answers older than this, seconds.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All answers; without it name some.")] = False,
    url: UrlOption = None,
    token: TokenOption = None,
    config: ConfigOption = None,
) -> None:
    """Take answers out of the cache; what several options name must hold all of them."""
    body: dict[str, Any] = {"group": group, "tenant": tenant, "key": key, "older_than_s": older_than}
    if credential_env is not None:
        body["credential"] = os.environ.get(credential_env)
        if not body["credential"]:
            fail(f"--credential-env: the variable {credential_env} is not set", BAD_INPUT)
    body = {name: value for name, value in body.items() if value is not None}
    if not body and not everything:
        fail("name what to take out (--group, --tenant, --credential-env, --key, --older-than), or --all", BAD_INPUT)
    found = operator(url, token, config).ask("POST", "/admin/cache/purge", body={**body, "everything": everything})
    typer.echo(f"{found['purged']} answers taken out")

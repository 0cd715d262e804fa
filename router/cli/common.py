"""What commands share: loading the configuration with readable errors, failing, talking to a running proxy."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from router.config.schema import Config

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Configuration file. Default: BITGEAR_CONFIG, otherwise built-in defaults."),
]
BAD_INPUT = 2
"""Exit code where the command, the configuration or the plan cannot work."""


def fail(message: str, code: int = 1) -> NoReturn:
    """Say what is wrong on stderr and leave."""
    typer.secho(f"bitgear: {message}", err=True, fg="red")
    raise typer.Exit(code)


def load_config(path: Path | None) -> Config:
    """The effective configuration; every mistake is printed and the command left with code 2."""
    from router.config.load import load
    from router.config.problems import ConfigError

    try:
        return load(path, os.environ)
    except ConfigError as error:
        fail(str(error), BAD_INPUT)


def reachable(host: str, port: int) -> str:
    """A URL by which this machine reaches a listening address."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def table_console() -> Console:
    """A console for tables on stdout; into a file or a pipe they are not squeezed into 80 columns."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 160)


def ask(method: str, url: str, *, body: object = None, headers: dict[str, str] | None = None) -> Any:
    """JSON from a running proxy; errors are printed and the command left with code 1."""
    import httpx

    try:
        # No proxy of the environment: the address is the operator's own.
        with httpx.Client(trust_env=False, timeout=30) as client:
            response = client.request(method, url, json=body, headers=headers)
    except httpx.HTTPError as error:
        fail(f"{url}: {error or type(error).__name__} (is `bitgear up` running there?)")
    except (httpx.InvalidURL, ValueError) as error:
        fail(f"{url}: {error}", BAD_INPUT)
    try:
        answer = response.json()
    except ValueError:
        fail(f"{url}: HTTP {response.status_code}, and the answer is no JSON")
    if response.status_code >= 400:
        told = answer.get("error", answer) if isinstance(answer, dict) else answer
        message = told.get("message", told) if isinstance(told, dict) else told
        fail(f"{url}: HTTP {response.status_code}: {message}")
    return answer

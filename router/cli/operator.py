"""How a command reaches a running Bitgear: the admin address, and a token for it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from router.cli.common import ask, load_config, reachable

TOKEN_VARIABLE = "BITGEAR_ADMIN_TOKEN"  # noqa: S105 - its name
UrlOption = Annotated[
    str | None, typer.Option("--url", help="Address of the admin API. Default: from the configuration.")
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token", help=f"Token. Default: {TOKEN_VARIABLE}, otherwise the one of the Bitgear that runs there."
    ),
]
_FILE = "admin-token"


@dataclass(frozen=True)
class Operator:
    """A running Bitgear's admin API."""

    url: str
    token: str | None

    def ask(self, method: str, path: str, *, body: object = None, headers: dict[str, str] | None = None) -> Any:
        """JSON from the admin API; errors are printed and the command left with code 1."""
        given = {"authorization": f"Bearer {self.token}"} if self.token else {}
        return ask(method, self.url + path, body=body, headers={**given, **(headers or {})})

    def patch(self, patch: dict[str, Any], reason: str, *, dry_run: bool) -> None:
        """Lay a patch on the configuration as it is now, and print what changes."""
        path = f"/admin/config?dry_run={'true' if dry_run else 'false'}&reason={quote(reason, safe='')}"
        made = self.ask("PATCH", path, body=patch, headers={"if-match": "*"})
        print_changed(made)
        if made.get("effect"):
            typer.echo(f"  effect: {made['effect']}")


def print_changed(answer: dict[str, Any]) -> None:
    """Print what came of a change."""
    typer.echo("would change:" if answer["dry_run"] else f"version {answer['version']}:")
    print_changes(answer["diff"])


def print_changes(rows: list[dict[str, Any]]) -> None:
    """Print where two documents differ."""
    for row in rows:
        typer.echo(f"  {row['path']}: {row['before']} -> {row['after']}")


def operator(url: str | None, token: str | None, config: Path | None) -> Operator:
    """The admin API at `url`, or at the configuration's address, with the best token there is."""
    home = None
    if url is None or not (token or os.environ.get(TOKEN_VARIABLE)):
        loaded = load_config(config)
        home = Path(loaded.local.home).expanduser()
        url = url or reachable(loaded.admin.host, loaded.admin.port)
    url = url.rstrip("/")
    return Operator(url, token or os.environ.get(TOKEN_VARIABLE) or (_own(home, url) if home is not None else None))


def write_own(folder: Path, token: str, url: str) -> Path:
    """Keep the token that Bitgear made for itself in its run folder, for this user alone; the file comes back."""
    path = folder / _FILE
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token + "\n")
    (folder / f"{_FILE}.url").write_text(url)
    return path


def run_folder_of(home: Path, url: str) -> Path | None:
    """The run folder of this user's Bitgear whose admin API is at `url`; None where none runs there."""
    for file in sorted((home / "run").glob(f"run-*/{_FILE}.url")):
        try:
            if file.read_text().strip() == url:
                return file.parent
        except OSError:
            continue
    return None


def _own(home: Path, url: str) -> str | None:
    """The token of this user's Bitgear that runs at `url`."""
    folder = run_folder_of(home, url)
    try:
        return (folder / _FILE).read_text().strip() if folder is not None else None
    except OSError:
        return None

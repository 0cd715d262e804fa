"""`bitgear tune`: run a tuning job of a running Bitgear, and read its report."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from router.cli.common import BAD_INPUT, ConfigOption, fail
from router.cli.operator import Operator, TokenOption, UrlOption, operator

_POLL_S = 0.5


def tune(
    subject: Annotated[str, typer.Argument(help="The group to tune; or `report`, followed by a job's id.")],
    job: Annotated[str | None, typer.Argument(help="Id of the job to report.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Wait for the job and print its report.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report only, change nothing.")] = False,
    classifier: Annotated[
        bool, typer.Option("--classifier", help="Retrain the group's classifier from pairs of answers instead.")
    ] = False,
    folder: Annotated[Path | None, typer.Option(help="Write the report there as JSON, Markdown and SVG.")] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", min=1, help="Longest wait for the job, seconds.")] = 300,
    url: UrlOption = None,
    token: TokenOption = None,
    config: ConfigOption = None,
) -> None:
    """Start a tuning job of a group (--once waits for it), or print the report of one: `bitgear tune report ID`."""
    if folder is not None:
        # Before a job runs whose report could not be written.
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            fail(f"{folder}: {error.strerror}", BAD_INPUT)
    admin = operator(url, token, config)
    if subject == "report":
        if job is None:
            fail("name the job: bitgear tune report ID", BAD_INPUT)
        _show(admin.ask("GET", f"/admin/tuning/jobs/{quote(job, safe='')}"), folder)
        return
    if job is not None:
        fail(f"{job!r} is one argument too many; `bitgear tune report ID` prints a report", BAD_INPUT)
    kind = "classifier" if classifier else "thresholds"
    asked = admin.ask("POST", "/admin/tuning/jobs", body={"group": subject, "dry_run": dry_run, "kind": kind})
    mine, before = str(asked["job"]), asked["waiting"] - 1
    if not (once or dry_run or folder):
        after = f" after {before} others" if before else ""
        typer.echo(f"job {mine} of {subject} is asked for{after}; `bitgear tune report {mine}` prints its report later")
        return
    end = time.monotonic() + timeout_s
    while mine not in _newest(admin, subject):
        if time.monotonic() > end:
            fail(
                f"job {mine} of {subject} did not end within {timeout_s:g} s; `bitgear tune report {mine}` looks later"
            )
        time.sleep(_POLL_S)
    _show(admin.ask("GET", f"/admin/tuning/jobs/{quote(mine, safe='')}"), folder)


def _newest(admin: Operator, group: str) -> list[str]:
    jobs: list[dict[str, Any]] = admin.ask("GET", f"/admin/tuning/jobs?group={quote(group, safe='')}")
    return [str(job["id"]) for job in jobs]


def _show(job: dict[str, Any], folder: Path | None) -> None:
    from router.tuning.report import markdown, write

    if folder is not None:
        try:
            typer.echo(str(write(job, folder)))
        except OSError as error:
            fail(f"{folder}: {error.strerror}")
        return
    typer.echo(markdown(job), nl=False)

"""`bitgear admin`: what the admin API does, from the shell."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from router.cli.admin_classifier import classifier_commands
from router.cli.common import BAD_INPUT, ConfigOption, fail
from router.cli.operator import TokenOption, UrlOption, operator, print_changed, print_changes

admin_app = typer.Typer(help="Look at a running Bitgear and change it.", no_args_is_help=True)
config_commands = typer.Typer(help="The effective configuration.", no_args_is_help=True)
replica_commands = typer.Typer(help="Replicas of a variant.", no_args_is_help=True)
key_commands = typer.Typer(help="API keys of applications.", no_args_is_help=True)
tuning_commands = typer.Typer(help="Tuning jobs.", no_args_is_help=True)
admin_app.add_typer(config_commands, name="config")
admin_app.add_typer(replica_commands, name="replicas")
admin_app.add_typer(key_commands, name="keys")
admin_app.add_typer(tuning_commands, name="tuning")
admin_app.add_typer(classifier_commands, name="classifier")

Reason = Annotated[str, typer.Option(help="Why, for the audit log.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing, print what would change.")]
GroupName = Annotated[str, typer.Argument(help="Name of the model group.")]
Pinned = Annotated[str, typer.Argument(help="The variant as group@variant.")]
JobId = Annotated[str, typer.Argument(help="Id of the job.")]
KeyName = Annotated[str, typer.Argument(help="Name of the key.")]
Most = Annotated[int, typer.Option(min=1, max=500, help="Most that are printed.")]


@config_commands.command("get")
def config_get(
    field: Annotated[str | None, typer.Argument(help="Only this field, as scenarios.realtime.")] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    config: ConfigOption = None,
) -> None:
    """Print the effective configuration as YAML."""
    found = operator(url, token, config).ask("GET", "/admin/config")
    for part in field.split(".") if field else ():
        if not isinstance(found, dict) or part not in found:
            fail(f"there is no field {field}", BAD_INPUT)
        found = found[part]
    if not field:
        # What is printed is a configuration file; which fields are live is `config get '$changes'`.
        found.pop("$changes", None)
    _print(found)


@config_commands.command("set")
def config_set(
    field: Annotated[str, typer.Argument(help="The field, as scenarios.realtime.ttft_ms.")],
    value: Annotated[str, typer.Argument(help="Its value in YAML; null for the default.")],
    reason: Reason = "",
    dry_run: DryRun = False,
    url: UrlOption = None,
    token: TokenOption = None,
    config: ConfigOption = None,
) -> None:
    """Set one field."""
    patch: Any = _yaml(value)
    for part in reversed(field.split(".")):
        patch = {part: patch}
    operator(url, token, config).patch(patch, reason, dry_run=dry_run)


@config_commands.command("patch")
def config_patch(
    file: Annotated[Path, typer.Argument(help="YAML or JSON with what differs (RFC 7396); - reads standard input.")],
    reason: Reason = "",
    dry_run: DryRun = False,
    url: UrlOption = None,
    token: TokenOption = None,
    config: ConfigOption = None,
) -> None:
    """Lay a merge patch on the configuration."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{file}: {error}", BAD_INPUT)
    patch = _yaml(text)
    if not isinstance(patch, dict):
        fail(f"{file}: a patch is a mapping", BAD_INPUT)
    operator(url, token, config).patch(patch, reason, dry_run=dry_run)


@admin_app.command("versions")
def versions(limit: Most = 20, url: UrlOption = None, token: TokenOption = None, config: ConfigOption = None) -> None:
    """List the newest versions."""
    for one in operator(url, token, config).ask("GET", f"/admin/versions?limit={limit}"):
        typer.echo(f"{one['version']:>6}  {_time(one['at'])}  {one['by']:<16} {one['reason']}")


@admin_app.command("diff")
def diff(
    version: Annotated[int, typer.Argument(min=0, help="The one; 0: the configuration file alone.")],
    to: Annotated[int, typer.Argument(min=0, help="The other.")],
    url: UrlOption = None,
    token: TokenOption = None,
    config: ConfigOption = None,
) -> None:
    """Print what one version says otherwise than another."""
    print_changes(operator(url, token, config).ask("GET", f"/admin/versions/{version}/diff?to={to}"))


@admin_app.command("rollback")
def rollback(
    version: Annotated[int, typer.Argument(min=0, help="0: the configuration file alone.")],
    reason: Reason = "",
    dry_run: DryRun = False,
    url: UrlOption = None,
    token: TokenOption = None,
    config: ConfigOption = None,
) -> None:
    """Make an older version the newest."""
    path = "/admin/rollback" + ("?dry_run=true" if dry_run else "")
    print_changed(operator(url, token, config).ask("POST", path, body={"version": version, "reason": reason}))


@admin_app.command("thresholds")
def thresholds(
    group: GroupName,
    settings: Annotated[list[str] | None, typer.Argument(help="To set: int8=0.2 int4=0.05; none: print them.")] = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    url: UrlOption = None,
    token: TokenOption = None,
    config: ConfigOption = None,
) -> None:
    """Print a group's thresholds, or set them; those left out go by the configuration."""
    there = operator(url, token, config)
    path = f"/admin/groups/{quote(group, safe='')}/thresholds"
    if not settings:
        _print(there.ask("GET", path))
        return
    wanted = {}
    for one in settings:
        precision, _, value = one.partition("=")
        try:
            wanted[precision] = float(value)
        except ValueError:
            fail(f"{one!r}: expected PRECISION=THRESHOLD, as int8=0.2", BAD_INPUT)
    path += "?dry_run=true" if dry_run else ""
    print_changed(there.ask("PUT", path, body={"thresholds": wanted, "reason": reason}))


def _replica(action: str) -> None:
    methods = {
        "add": ("POST", ""),
        "remove": ("DELETE", ""),
        "drain": ("POST", "/drain"),
        "undrain": ("POST", "/undrain"),
    }
    method, ending = methods[action]

    def run(
        variant: Pinned,
        replica: Annotated[str, typer.Argument(help="Its base URL.")],
        url: UrlOption = None,
        token: TokenOption = None,
        config: ConfigOption = None,
    ) -> None:
        group, at, name = variant.partition("@")
        if not at:
            fail(f"{variant!r}: name the variant as group@variant", BAD_INPUT)
        path = f"/admin/groups/{quote(group, safe='')}/variants/{quote(name, safe='')}/replicas{ending}"
        body = {"url": replica}
        if method == "DELETE":
            path, body = f"{path}?url={quote(replica, safe='')}", {}
        print_changed(operator(url, token, config).ask(method, path, body=body or None))

    run.__doc__ = {
        "add": "Add a running server.",
        "remove": "Take a replica out; its requests in flight finish.",
        "drain": "Send a replica no new requests.",
        "undrain": "Send a drained replica requests again.",
    }[action]
    replica_commands.command(action)(run)


for _action in ("add", "remove", "drain", "undrain"):
    _replica(_action)


_LIMITS = {
    "requests_per_minute": "requests a minute",
    "tokens_per_minute": "tokens a minute",
    "max_concurrent": "at once",
}


@key_commands.command("list")
def keys_list(url: UrlOption = None, token: TokenOption = None, config: ConfigOption = None) -> None:
    """List the keys and their limits; the keys themselves are kept nowhere."""
    for one in operator(url, token, config).ask("GET", "/admin/keys"):
        expired = one["expires"] is not None and one["expires"] <= time.time()
        state = "disabled" if one["disabled"] else "expired" if expired else "active"
        typer.echo(
            f"{one['name']:<24} {state:<9} {one['source']:<5} {one['tenant'] or '-':<16} {one['groups'] or 'all groups'}"
            + "".join(f"  {words} {one[name]:.15g}" for name, words in _LIMITS.items() if one[name] is not None)
        )


@key_commands.command("make")
def keys_make(
    name: KeyName,
    tenant: Annotated[str, typer.Option(help="Who uses it, for people.")] = "",
    group: Annotated[list[str] | None, typer.Option(help="A group that it may use; none: all.")] = None,
    scenario: Annotated[
        str | None, typer.Option(help="Scenario of its requests that name none: realtime, batch or edge.")
    ] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Its requests use no cache unless they say so by cache-control.")
    ] = False,
    days: Annotated[float | None, typer.Option(min=0, help="Refuse it after so many days. Default: never.")] = None,
    requests_per_minute: Annotated[
        float | None, typer.Option(min=0, help="Most requests a minute; above it the client gets 429.")
    ] = None,
    tokens_per_minute: Annotated[
        int | None,
        typer.Option(min=1, help="Most prompt and generated tokens a minute; above it the client gets 429."),
    ] = None,
    max_concurrent: Annotated[
        int | None, typer.Option(min=1, help="Most requests in flight; above it the client gets 429.")
    ] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    config: ConfigOption = None,
) -> None:
    """Make a key and print it, this once."""
    body = {
        "name": name,
        "tenant": tenant,
        "groups": group or [],
        "scenario": scenario,
        "cache": "none" if no_cache else None,
        "expires": None if days is None else round(time.time() + days * 86_400),
        "requests_per_minute": requests_per_minute,
        "tokens_per_minute": tokens_per_minute,
        "max_concurrent": max_concurrent,
    }
    typer.echo(operator(url, token, config).ask("POST", "/admin/keys", body=body)["key"])


@key_commands.command("limit")
def keys_limit(
    name: KeyName,
    requests_per_minute: Annotated[float | None, typer.Option(min=0, help="0: no limit.")] = None,
    tokens_per_minute: Annotated[int | None, typer.Option(min=0, help="0: no limit.")] = None,
    max_concurrent: Annotated[int | None, typer.Option(min=0, help="0: no limit.")] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    config: ConfigOption = None,
) -> None:
    """Change a key's limits; those that are not named stay."""
    limits = {
        "requests_per_minute": requests_per_minute,
        "tokens_per_minute": tokens_per_minute,
        "max_concurrent": max_concurrent,
    }
    body = {field: value or None for field, value in limits.items() if value is not None}
    if not body:
        fail("name a limit: --requests-per-minute, --tokens-per-minute or --max-concurrent", BAD_INPUT)
    found = operator(url, token, config).ask("PATCH", f"/admin/keys/{quote(name, safe='')}", body=body)
    typer.echo("  ".join(f"{words}: {found[field] or 'no limit'}" for field, words in _LIMITS.items()))


@key_commands.command("revoke")
def keys_revoke(name: KeyName, url: UrlOption = None, token: TokenOption = None, config: ConfigOption = None) -> None:
    """Revoke a key at once."""
    operator(url, token, config).ask("DELETE", f"/admin/keys/{quote(name, safe='')}")
    typer.echo(f"{name} revoked")


@admin_app.command("audit")
def audit(limit: Most = 20, url: UrlOption = None, token: TokenOption = None, config: ConfigOption = None) -> None:
    """Print who changed what, newest first."""
    for one in operator(url, token, config).ask("GET", f"/admin/audit?limit={limit}"):
        version = f"version {one['version']}" if one["version"] is not None else one["action"]
        typer.echo(f"{_time(one['at'])}  {one['by']}  {version}  {one['reason']}")
        print_changes(one["diff"])


@tuning_commands.command("status")
def tuning_status(url: UrlOption = None, token: TokenOption = None, config: ConfigOption = None) -> None:
    """Print every group's tuning and the last jobs."""
    _print(operator(url, token, config).ask("GET", "/admin/tuning"))


@tuning_commands.command("start")
def tuning_start(
    group: GroupName,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report only, change nothing.")] = False,
    url: UrlOption = None,
    token: TokenOption = None,
    config: ConfigOption = None,
) -> None:
    """Ask for a job now."""
    body = {"group": group, "dry_run": dry_run}
    _print(operator(url, token, config).ask("POST", "/admin/tuning/jobs", body=body))


@tuning_commands.command("report")
def tuning_report(job: JobId, url: UrlOption = None, token: TokenOption = None, config: ConfigOption = None) -> None:
    """Print one job with its report."""
    _print(operator(url, token, config).ask("GET", f"/admin/tuning/jobs/{quote(job, safe='')}"))


def _on_job(action: str, words: str) -> None:
    def run(job: JobId, url: UrlOption = None, token: TokenOption = None, config: ConfigOption = None) -> None:
        _print(operator(url, token, config).ask("POST", f"/admin/tuning/jobs/{quote(job, safe='')}/{action}"))

    run.__doc__ = words
    tuning_commands.command(action)(run)


def _on_group(action: str, words: str) -> None:
    def run(group: GroupName, url: UrlOption = None, token: TokenOption = None, config: ConfigOption = None) -> None:
        _print(operator(url, token, config).ask("POST", f"/admin/tuning/groups/{quote(group, safe='')}/{action}"))

    run.__doc__ = words
    tuning_commands.command(action)(run)


_on_job("approve", "Put a proposed change on trial; one towards full precision holds at once.")
_on_job("reject", "Refuse a proposed change, or end its trial.")
_on_group("pause", "Keep jobs from changing a group.")
_on_group("resume", "Let jobs change a group again.")


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        fail(f"not YAML: {error}", BAD_INPUT)


def _print(value: Any) -> None:
    import yaml

    typer.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=118).rstrip())


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))

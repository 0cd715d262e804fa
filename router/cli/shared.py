"""Where the shared state of a running Bitgear is: events, feedback, control documents."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from router.cli.common import BAD_INPUT, fail, reachable
from router.cli.operator import run_folder_of

if TYPE_CHECKING:
    from router.config.schema import Config


def shared_state(config: Config, given: str | None) -> tuple[str, str | None]:
    """Return the Redis URL and the configured password: `given`, `redis.url`, else the private server of this user's Bitgear.

    That is the one that serves the configured admin address, else the only one that runs. Where there is none the
    command is left with code 2.
    """
    password = os.environ.get(config.redis.password_env) if config.redis.password_env else None
    url = given or config.redis.url
    if url is not None:
        return url, password
    private = _private(config)
    if private is None:
        fail(
            f"redis.url is not set, and no Bitgear with a Redis runs with local.home {config.local.home}; name one with --redis",
            BAD_INPUT,
        )
    return private, None


def _private(config: Config) -> str | None:
    from router.config.runtime import Runtime, RuntimeFileError

    home = Path(config.local.home).expanduser()
    folder = run_folder_of(home, reachable(config.admin.host, config.admin.port))
    files = [folder / "runtime.json"] if folder is not None else list((home / "run").glob("run-*/runtime.json"))
    if len(files) != 1:
        return None
    try:
        return Runtime.read(files[0]).redis_url
    except RuntimeFileError:
        # It ended a moment ago.
        return None


__all__ = ["shared_state"]

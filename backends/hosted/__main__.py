"""`python -m backends.hosted`: a server for one hosted model, until it is told to end."""

from __future__ import annotations

import argparse
import os
import sys

import uvicorn
from pydantic import ValidationError

from backends.hosted.app import HostedApp
from backends.hosted.errors import HostedError
from backends.hosted.provider import LiteLlm
from backends.settings import HostedSettings


def main(arguments: list[str] | None = None) -> int:
    """Serve; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m backends.hosted", description="A hosted model through litellm.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--model", required=True, help="name under which it serves")
    parser.add_argument("--alias", action="append", default=[], help="a further name; may be repeated")
    parser.add_argument("--settings", required=True, help="HostedSettings as JSON")
    options = parser.parse_args(arguments)
    try:
        settings = HostedSettings.model_validate_json(options.settings)
        if not settings.target:
            raise HostedError(500, "target is missing: the model's name for litellm")
        provider = LiteLlm(settings, os.environ)
    except ValidationError as error:
        sys.stderr.write(f"--settings: {error}\n")
        return 2
    except ModuleNotFoundError:
        sys.stderr.write("litellm is not installed: pip install 'bitgear[hosted]'\n")
        return 3
    except HostedError as error:
        sys.stderr.write(f"--settings: {error.message}\n")
        return 2
    app = HostedApp(
        provider,
        model=options.model,
        aliases=tuple(options.alias),
        timeout_s=settings.timeout_s,
        secrets=provider.secrets,
    )
    uvicorn.run(app, host=options.host, port=options.port, http="httptools", access_log=False, log_level="warning")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m backends.simulator`: one simulated server, until it is told to end."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from typing import get_args

import uvloop
from pydantic import ValidationError

from backends.settings import Precision, SimulatorSettings
from backends.simulator.app import Simulator
from backends.simulator.predict import table
from backends.simulator.serving import serving


def main(arguments: list[str] | None = None) -> int:
    """Serve, or print a prediction; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m backends.simulator", description="A simulated vLLM server.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument("--model", default="simulated", help="name under which it serves")
    parser.add_argument("--alias", action="append", default=[], help="a further name; may be repeated")
    parser.add_argument("--precision", choices=get_args(Precision), default="fp16")
    parser.add_argument("--settings", default="{}", help="SimulatorSettings as JSON")
    parser.add_argument("--predict", action="store_true", help="print tokens/s by batch and precision, and end")
    parser.add_argument("--context", type=int, default=512, help="for --predict: tokens cached per sequence")
    options = parser.parse_args(arguments)
    try:
        settings = SimulatorSettings.model_validate_json(options.settings)
    except ValidationError as error:
        sys.stderr.write(f"--settings: {error}\n")
        return 2
    if options.predict:
        sys.stdout.write(table(settings, options.context))
        return 0
    simulator = Simulator(settings, model=options.model, precision=options.precision, aliases=tuple(options.alias))
    try:
        uvloop.run(_serve(simulator, options.host, options.port))
    except OSError as error:
        sys.stderr.write(f"cannot listen on {options.host}:{options.port}: {error}\n")
        return 1
    return 0


async def _serve(simulator: Simulator, host: str, port: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with serving(simulator, host, port) as running:
        core = simulator.core
        sys.stdout.write(f"simulated {core.model} at {core.precision} on {running.url}\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    sys.exit(main())

"""The tuning process: `python -m router.tuning --token T`, the runtime file on standard input, ended by a zero byte."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys

from router.config.runtime import Runtime, RuntimeFileError
from router.tuning.process import run


def main(argv: list[str] | None = None) -> int:
    """Tick until the parent is gone, a signal comes, or the lease is lost; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m router.tuning")
    parser.add_argument("--token", required=True, help="the lease's token")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    log = logging.getLogger("bitgear")
    os.nice(5)
    data = bytearray()
    while not data.endswith(b"\x00"):
        piece = os.read(0, 65536)
        if not piece:
            return 2
        data += piece
    try:
        runtime = Runtime.from_json(bytes(data[:-1]))
    except RuntimeFileError as error:
        log.error("tuning cannot start: %s", error)
        return 2
    asyncio.run(_run(runtime, arguments.token, log))
    return 0


async def _run(runtime: Runtime, token: str, log: logging.Logger) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(run(runtime, token, os.environ, log))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    # The parent writes nothing more: readable means that it is gone.
    loop.add_reader(0, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


if __name__ == "__main__":
    sys.exit(main())

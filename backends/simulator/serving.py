"""A simulator that listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from backends.settings import Precision, SimulatorSettings
from backends.simulator.app import Simulator


@dataclass(frozen=True)
class Running:
    """A simulator that serves."""

    url: str
    """Base URL, without `/v1`."""
    simulator: Simulator


@asynccontextmanager
async def serving(simulator: Simulator, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Running]:
    """Serve until left. Raises OSError if the address is taken."""
    bound = await simulator.server.listen(host, port)
    stepping = asyncio.get_running_loop().create_task(simulator.core.runner.run())
    try:
        yield Running(f"http://{host}:{bound}", simulator)
    finally:
        await simulator.server.close()
        stepping.cancel()
        await asyncio.gather(stepping, return_exceptions=True)


@asynccontextmanager
async def simulated(
    settings: SimulatorSettings | None = None,
    *,
    model: str = "simulated",
    precision: Precision = "fp16",
    aliases: Iterable[str] = (),
) -> AsyncIterator[str]:
    """A simulator in this process and loop, for tests: its base URL, without `/v1`."""
    chosen = SimulatorSettings.model_validate({}) if settings is None else settings
    async with serving(Simulator(chosen, model=model, precision=precision, aliases=tuple(aliases))) as running:
        yield running.url


__all__ = ["Running", "serving", "simulated"]

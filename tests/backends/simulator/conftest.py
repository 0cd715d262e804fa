"""A simulator in the test's own loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from backends.settings import SimulatorSettings
from backends.simulator import Running, Simulator, serving

Start = Callable[..., Awaitable[Running]]


@pytest.fixture
async def simulator() -> AsyncIterator[Start]:
    """Starts simulators of model `m`, given settings as keywords; they end with the test."""
    async with AsyncExitStack() as stack:

        async def start(precision: Any = "int4", **settings: Any) -> Running:
            made = Simulator(
                SimulatorSettings(**{"time_scale": 0.0, **settings}), model="m", precision=precision, aliases=("m@v",)
            )
            return await stack.enter_async_context(serving(made))

        yield start

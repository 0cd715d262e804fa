"""Tuning beside the workers: whichever worker gets the lease starts `python -m router.tuning`, which does the computing.

The child ends with its parent (its standard input closes) and when it loses the lease; then another worker takes over.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping

from redis.asyncio import Redis
from redis.exceptions import RedisError

from router.background import Background
from router.config.runtime import Runtime
from router.config.schema import Config
from router.store.client import open_client
from router.tuning.jobs import Jobs, Lease

LEASE_S = 15.0
_TRY_S = 3.0
_END_S = 5.0
"""The tuning process may take so long to end."""


def connect(runtime: Runtime, env: Mapping[str, str], timeout_s: float = 10.0) -> Redis:
    """Return a client of the shared state; nothing is connected yet. Raises ValueError without an address."""
    if runtime.redis_url is None:
        raise ValueError("tuning needs Redis, and there is none")
    settings = runtime.config.redis
    password = env.get(settings.password_env) if settings.password_env else None
    return open_client(runtime.redis_url, password=password, timeout_s=timeout_s)


class Scheduler:
    """In a worker: tries for the lease, and keeps the tuning process of whoever has it. `config` gives the one in force."""

    def __init__(
        self, runtime: Runtime, config: Callable[[], Config], env: Mapping[str, str], log: logging.Logger
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._env = dict(env)
        self._log = log
        self._task = Background("tuning", again_s=_END_S + 1.0)

    def start(self) -> None:
        """Begin, where there is Redis. With mode `off` there is a process only while a person asks for a job."""
        if self._runtime.redis_url is not None:
            self._task.start(self._run)

    async def stop(self) -> None:
        """End the task, and the process with it."""
        await self._task.stop()

    async def _run(self) -> None:
        client = connect(self._runtime, self._env, self._runtime.config.redis.timeout_s)
        lease, jobs = Lease(client, LEASE_S), Jobs(client)
        try:
            while True:
                try:
                    if await self._wanted(jobs) and await lease.take():
                        await self._child(lease.token)
                except (RedisError, OSError) as error:
                    self._log.debug("tuning: no lease (%s)", error)
                await asyncio.sleep(_TRY_S)
        finally:
            await client.aclose(close_connection_pool=True)

    async def _wanted(self, jobs: Jobs) -> bool:
        return self._config().tuning.mode != "off" or await jobs.wished(list(self._runtime.groups()))

    async def _child(self, token: str) -> None:
        """Run the tuning process until it ends."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "router.tuning", "--token", token, stdin=asyncio.subprocess.PIPE, env=self._env
        )
        try:
            assert process.stdin is not None
            process.stdin.write(self._runtime.to_json() + b"\n\x00")
            await process.stdin.drain()
            await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), _END_S)
                except TimeoutError:
                    process.kill()
                    await process.wait()

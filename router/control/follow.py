"""Every worker follows the control document: told of a change by a message, and asking twice a second in any case."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, NamedTuple

from redis.exceptions import RedisError

from router.config.problems import masked
from router.control.document import ControlDocument
from router.control.store import ControlStore, UnreadableDocument, dump, parse, stamp
from router.keys.record import KeyRecord
from router.stopping import end

State = Literal["off", "starting", "up", "down", "stopped"]
POLL_S = 0.5
_LONGEST_PAUSE_S = 2.0


class Refused(Exception):  # noqa: N818
    """A document that cannot be applied; the message says why, naming the field."""


class FollowStats(NamedTuple):
    """Where a worker stands."""

    state: State
    """off: there is no Redis; starting, up, down: whether it answers; stopped."""
    version: int
    """Of the document that is applied."""
    refused: tuple[int, str] | None
    """Newest version that could not be applied, and why; None where the newest one is applied."""


class Follower:
    """Calls `apply` with each new document, in order of its coming; `start` and `stop` on the worker's loop.

    `apply` raises Refused where a document cannot work: it then changed nothing, and the last one stays. `file`
    keeps the last applied document, so that a start without Redis goes on with it. `store` None: there is no Redis.
    `keys` takes the API keys of a document that cannot be applied: a key that was revoked, or that requests need at all,
    must not depend on the rest of it.
    """

    def __init__(
        self,
        store: ControlStore | None,
        apply: Callable[[ControlDocument], Awaitable[None]],
        log: logging.Logger,
        *,
        file: Path | None = None,
        timeout_s: float = 0.5,
        poll_s: float = POLL_S,
        keys: Callable[[dict[str, KeyRecord]], None] | None = None,
    ) -> None:
        self._store = store
        self._keys = keys
        self._apply = apply
        self._log = log
        self._file = file
        self._timeout_s = timeout_s
        self._poll_s = poll_s
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._seen = (0, "")
        self._followed = False
        self._refused: tuple[int, str] | None = None
        self._state: State = "starting" if store is not None else "off"
        self._one_at_a_time = asyncio.Lock()
        self.document = ControlDocument()
        """The one that is applied."""

    def stats(self) -> FollowStats:
        """Return where this worker stands."""
        return FollowStats(self._state, self.document.version, self._refused)

    async def start(self) -> None:
        """Apply what the file and Redis say, waiting for Redis as long as for one answer; then follow."""
        if self._store is None:
            return
        kept = self._kept()
        if kept is not None and kept.version:
            await self._take(kept, keep=False)
        await self.look()
        self._tasks = [
            asyncio.create_task(self._poll(), name="control: poll"),
            asyncio.create_task(self._listen(self._store), name="control: listen"),
        ]

    async def stop(self) -> None:
        """Follow no longer."""
        await end(self._tasks)
        self._tasks = []
        if self._store is not None:
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                async with asyncio.timeout(self._timeout_s):
                    await self._store.close()
            self._state = "stopped"

    async def again(self) -> None:
        """Apply the document that is applied once more: something that it names could not be had then."""
        async with self._one_at_a_time:
            await self._take(self.document, keep=False)

    async def look(self) -> None:
        """Ask Redis now; an unreachable one is noted, never raised."""
        if self._store is None:
            return
        async with self._one_at_a_time:
            try:
                async with asyncio.timeout(self._timeout_s):
                    document = await self._newer(self._store)
            except TimeoutError:
                self._change("down", f"no answer in {self._timeout_s:g} s")
                return
            except (RedisError, OSError) as error:
                self._change("down", masked(str(error)) or type(error).__name__)
                return
            self._change("up", "")
            if document is not None:
                await self._take(document)

    async def _newer(self, store: ControlStore) -> ControlDocument | None:
        mark = await store.mark()
        if mark == self._seen:
            return None
        if mark[0] == 0 and self.document.version:
            await self._restore(store, mark[0])
            return None
        try:
            found = await store.current()
        except UnreadableDocument as error:
            self._seen = mark
            self._refuse(mark[0], str(error), error.keys)
            return None
        # Redis came back with an older state: in it a revoked key would be valid again. Before anything was followed
        # here the kept file counts only where it is the later one: Redis may have begun anew since.
        if found.version < self.document.version and (self._followed or found.at < self.document.at):
            await self._restore(store, found.version)
            return None
        return found

    async def _restore(self, store: ControlStore, lost: int) -> None:
        # What all followed goes on, and is written down again.
        if await store.restore(self.document):
            had = f"came back with version {lost}" if lost else "had lost the document"
            self._log.warning("control: Redis %s; version %d restored", had, self.document.version)
        self._seen = (self.document.version, stamp(self.document))
        self._followed = True

    async def _take(self, document: ControlDocument, *, keep: bool = True) -> None:
        self._seen = (document.version, stamp(document))
        self._followed = self._followed or keep
        try:
            await self._apply(document)
        except Refused as error:
            self._refuse(document.version, str(error), document.keys)
            return
        except Exception as error:
            # Following goes on whatever one document does: else no later one could mend it.
            self._log.exception("control: version %d failed", document.version)
            self._refuse(document.version, f"{type(error).__name__}: {error}", document.keys)
            return
        self.document, self._refused = document, None
        by = f" by {document.by}" if document.by else ""
        self._log.info("control: version %d%s is applied", document.version, by)
        if keep:
            self._keep(document)

    def _refuse(self, version: int, why: str, keys: dict[str, KeyRecord] | None) -> None:
        self._refused = (version, why)
        if keys is not None and keys != self.document.keys:
            self.document = self.document.model_copy(update={"keys": keys})
            if self._keys is not None:
                self._keys(keys)
            if self.document.version:
                self._keep(self.document)
        self._log.error(
            "control: version %d is not applied%s, version %d goes on: %s",
            version,
            "" if keys is None else " beyond its API keys",
            self.document.version,
            why,
        )

    def _kept(self) -> ControlDocument | None:
        if self._file is None:
            return None
        try:
            return parse(self._file.read_bytes())
        except FileNotFoundError:
            return None
        except UnreadableDocument as error:
            self._refuse(0, f"{self._file}: {error}", error.keys)
            return None
        except OSError as error:
            self._log.warning("control: %s cannot be read: %s", self._file, error)
            return None

    def _keep(self, document: ControlDocument) -> None:
        if self._file is None:
            return
        temporary = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(dump(document))
            temporary.replace(self._file)
        except OSError as error:
            self._log.warning("control: %s cannot be written: %s", self._file, error.strerror or error)

    async def _poll(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self._wake.wait()
            self._wake.clear()
            await self.look()

    async def _listen(self, store: ControlStore) -> None:
        pause = self._poll_s
        while True:
            try:
                async for _ in store.listen():
                    pause = self._poll_s
                    self._wake.set()
            except (RedisError, OSError, TimeoutError, ValueError) as error:
                # The poll tells of an unreachable Redis; a user without the right to subscribe still has the poll.
                self._log.debug("control: no messages: %s", masked(str(error)))
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _change(self, state: State, why: str) -> None:
        before, self._state = self._state, state
        if before == state:
            return
        if state == "down":
            self._log.warning("control: Redis is away (%s); version %d goes on", why, self.document.version)
        elif before == "down":
            self._log.info("control: Redis is back")


__all__ = ["FollowStats", "Follower", "Refused"]

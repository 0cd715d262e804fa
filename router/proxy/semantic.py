"""Answers to the same question in other words, for the groups that want them.

One look-up finds all wordings of a question: its name is a hash of everything but the last user turn (history, tools,
parameters, tenant, group) and of the words in that turn that count. Among these the likest wording is taken, if it is
alike enough. Groups with an `embedding` find theirs by `nearest` instead; the books of wrong answers are the same.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from router.cache.entry import Entry, Format, UnreadableEntry
from router.cache.key import Key, Place, request_key
from router.cache.semantic.audit import Audit, agree
from router.cache.semantic.guard import core
from router.cache.semantic.index import Index
from router.cache.semantic.turn import last_turn, without_turn
from router.cache.semantic.vector import Vector, embed, likeness
from router.cache.store import Store
from router.config.semantic import SemanticConfig
from router.proxy.nearest import Nearest, Turn

_KIND = "wordings"
READ_EVERY_S = 10.0
"""Between two looks at the threshold that other workers may have raised, seconds."""
_MOST = 8
"""Wordings of one question that are remembered."""


def books_of(group: str, settings: SemanticConfig) -> str:
    """Return the name of a group's books in Redis: threshold, checks, wrong ones. Each embedding has its own."""
    if settings.embedding is None:
        return f"bitgear:a1:{group}"
    by = [settings.guard, settings.embedding.model, settings.embedding.group]
    return f"bitgear:a1:{group}:{blake2b(orjson.dumps(by), digest_size=6).hexdigest()}"


class Wording(NamedTuple):
    """One request's last turn."""

    group: str
    names: Key
    """Where the wordings of its question are."""
    vector: Vector
    known: list[list[Any]]
    """What was found there; filled by `find`."""


class Alike(NamedTuple):
    """An answer to another wording."""

    entry: Entry
    likeness: float
    check: bool
    """Whether it is to be answered afresh and compared."""


class Semantic:
    """One worker's look-ups by likeness; `settings` by group, of those that want it."""

    def __init__(
        self,
        store: Store,
        form: Format,
        settings: Mapping[str, SemanticConfig],
        log: logging.Logger,
        nearest: Mapping[str, Nearest],
        previous: Semantic | None = None,
    ) -> None:
        self._store = store
        self._form = form
        self._settings = settings
        self._log = log
        self._read_at: dict[str, float] = {}
        self.audits = {name: Audit(s.least, s.max_wrong) for name, s in settings.items()}
        self._nearest = dict(nearest)
        self._replaced: list[Nearest] = []
        if previous is not None:
            for name, last in previous._nearest.items():
                # Vectors that are known stay known.
                if name in nearest and last.same_as(nearest[name]):
                    self._nearest[name] = last
                else:
                    self._replaced.append(last)
            # What was learnt of wrong answers holds as long as the settings do.
            self.audits.update({n: a for n, a in previous.audits.items() if previous._settings[n] == settings.get(n)})

    def start(self) -> None:
        """Begin to follow what other workers learn; end what a configuration before this one followed."""
        for nearest in self._nearest.values():
            nearest.start(self._store, self._form)
        for nearest in self._replaced:
            nearest.close()
        self._replaced = []

    @property
    def indexes(self) -> Mapping[str, Index]:
        """The vectors known in this worker, by group."""
        return {name: nearest.index for name, nearest in self._nearest.items()}

    async def stop(self) -> None:
        """Follow no longer."""
        for nearest in self._nearest.values():
            await nearest.stop()

    def wording(self, path: bytes, raw: bytes, body: Mapping[str, Any], place: Place) -> Wording | Turn | None:
        """Return the request's wording; None where the group does not want it, or only the exact text will do."""
        if place.group not in self._settings:
            return None
        nearest = self._nearest.get(place.group)
        if nearest is not None:
            return nearest.turn(path, raw, body, place)
        text = last_turn(raw, body)
        if text is None:
            return None
        words = core(text)
        if words is None:
            return None
        question = {**without_turn(body), "\0words": words}
        names = request_key(path, b"", question, place)
        if names is None:
            return None
        names = names._replace(entry=names.entry.replace(":c1:", ":s1:", 1))
        return Wording(place.group, names, embed(text), [])

    async def find(self, wording: Wording | Turn, own: Key) -> Alike | None:
        """Return the answer to the likest wording that is alike enough, in two round trips; None without one."""
        await self._read(wording.group)
        if isinstance(wording, Turn):
            nearest = self._nearest[wording.group]
            near = await nearest.find(wording, own, self.audits[wording.group].threshold)
            if near is None:
                return None
            alike = await self._fetch(wording.group, *near)
            if alike is None:
                nearest.drop(wording, near[1])
            return alike
        likest = await self._likest(wording, own)
        return None if likest is None else await self._fetch(wording.group, *likest)

    async def _likest(self, wording: Wording, own: Key) -> tuple[float, str] | None:
        data = await self._store.look(wording.names, None, 0)
        if not isinstance(data, bytes):
            return None
        try:
            known = orjson.loads(self._form.decode(data, wording.names.entry).body)
        except (UnreadableEntry, orjson.JSONDecodeError):
            return None
        wording.known.extend(known)
        best, name = 0.0, ""
        for candidate, slots, weights in known:
            alike = likeness(wording.vector, dict(zip(slots, (w / 1000 for w in weights), strict=True)))
            if alike > best and candidate != own.entry:
                best, name = alike, candidate
        return None if best < self.audits[wording.group].threshold else (best, name)

    async def _fetch(self, group: str, alike: float, name: str) -> Alike | None:
        found = await self._store.look(Key("", name, ""), None, 0)
        if not isinstance(found, bytes):
            return None
        try:
            entry = self._form.decode(found, name)
        except UnreadableEntry:
            return None
        return Alike(entry, alike, random.random() < self._settings[group].sample)

    async def _read(self, group: str) -> None:
        """Read the threshold that all workers share, now and then."""
        now = time.monotonic()
        if now < self._read_at.get(group, 0.0) + READ_EVERY_S:
            return
        self._read_at[group] = now
        told = await self._store.audit(books_of(group, self._settings[group]), *self.audits[group].arguments("look"))
        if told is not None:
            self.audits[group].take(told)

    def keep(self, wording: Wording | Turn, own: Key, ttl_ms: int) -> None:
        """Remember that this wording has an answer under its own key."""
        if isinstance(wording, Turn):
            self._nearest[wording.group].keep(wording, own, ttl_ms, self._store, self._form)
            return
        mine = [own.entry, list(wording.vector), [round(w * 1000) for w in wording.vector.values()]]
        others = [k for k in wording.known if k[0] != own.entry]
        body = orjson.dumps([mine, *others[: _MOST - 1]])
        now_ms = time.time_ns() // 1_000_000
        data = self._form.encode(Entry(_KIND, "", "", 0, 0, now_ms, body), wording.names.entry)
        if data is not None:
            self._store.put(wording.names, data, ttl_ms, None)

    async def check(self, group: str, old: Entry, fresh: Entry) -> bool:
        """Compare an answer to another wording with the fresh one; raise the threshold when too many are wrong."""
        audit = self.audits[group]
        agreed = agree(old.body, fresh.body)
        told = await self._store.audit(books_of(group, self._settings[group]), *audit.arguments("0" if agreed else "1"))
        if audit.record(agreed) if told is None else audit.take(told):
            self._log.warning(
                "cache: too many answers to other wordings were wrong: group=%s threshold=%.2f", group, audit.threshold
            )
        return agreed

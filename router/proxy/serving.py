"""What a request is served with: one immutable value, taken once by each request and swapped whole."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from classifier.artefact import ArtefactError
from classifier.scoring import Trained, load
from router.cache.secret import CacheSetupError
from router.config.runtime import Runtime
from router.config.schema import Config
from router.control.apply import BadDocument, Mistake, check_tuning, next_runtime
from router.control.artefacts import Artefacts
from router.control.document import ControlDocument
from router.keys.pace import Pace
from router.keys.places import Claims
from router.keys.record import KeyRecord
from router.keys.table import KeyTable
from router.proxy.cache_setup import build_caching
from router.proxy.caching import Caching
from router.proxy.deciding import Decider, decider_of
from router.state import Fleet


class Serving(NamedTuple):
    """Everything that a control document may change."""

    document: ControlDocument
    runtime: Runtime
    fleet: Fleet
    decider: Decider
    caching: Caching
    classifier: Trained
    """Of all groups that have none of their own."""
    classifiers: Mapping[str, Trained] = MappingProxyType({})
    """By group: what was put in for it, or its configuration's."""
    missing: Mapping[str, str] = MappingProxyType({})
    """Groups whose classifier cannot be had now, and why."""
    keys: KeyTable | None = None
    """None: requests need no key."""

    @property
    def config(self) -> Config:
        """The effective configuration."""
        return self.runtime.config

    @property
    def version(self) -> str:
        """Version of policy and thresholds, as decisions name it."""
        return str(self.document.version) if self.document.version else self.config.policy_version


class Builder:
    """Makes the next `Serving` of the last one: what stays the same is the same object. `base` is the worker's file."""

    def __init__(
        self,
        base: Runtime,
        scorer: Trained,
        env: Mapping[str, str],
        log: logging.Logger,
        claims: Claims | None = None,
        artefacts: Artefacts | None = None,
    ) -> None:
        self._artefacts = artefacts if artefacts is not None else Artefacts(None)
        self._files: dict[tuple[str, int, int], Trained] = {}
        self._claims = claims if claims is not None else Claims(Pace())
        self.base = base
        self._scorer = scorer
        self._env = env
        self._log = log

    def first(self) -> Serving:
        """Return what the file alone says. Raises CacheSetupError, ArtefactError."""
        own = self._configured(self.base.config)
        fleet = Fleet(
            self.base, self._env, self._scorer.thresholds, own={name: found.thresholds for name, found in own.items()}
        )
        decider = decider_of(self._scorer, self.base.config, own)
        document = ControlDocument()
        caching = build_caching(self.base, decider, self._env, self._log)
        return Serving(document, self.base, fleet, decider, caching, self._scorer, own, {}, self._keys(document, None))

    async def next(self, last: Serving, document: ControlDocument) -> Serving:
        """Return what `document` says, with nothing of `last` changed. Raises BadDocument.

        A group whose classifier cannot be had now is served with the configured one, and thresholds for that: keys and
        all else that the document says must not wait for it.
        """
        same = document.config == last.document.config
        check_tuning(document)
        runtime = last.runtime if same else next_runtime(self.base, document)
        own, missing = await self._classifiers(runtime.config, document)
        thresholds = {name: found.thresholds for name, found in own.items()}
        fleet = Fleet(runtime, self._env, self._scorer.thresholds, _untuned(document, missing), last.fleet, thresholds)
        keys = last.keys if document.keys == last.document.keys else self._keys(document, last.keys)
        if same and fleet.groups.keys() == last.fleet.groups.keys() and own == last.classifiers:
            return last._replace(document=document, fleet=fleet, missing=missing, keys=keys)
        decider = decider_of(self._scorer, runtime.config, own)
        try:
            caching = build_caching(runtime, decider, self._env, self._log, last.caching)
        except CacheSetupError as error:
            raise BadDocument([Mistake("cache", str(error))]) from None
        return Serving(document, runtime, fleet, decider, caching, self._scorer, own, missing, keys)

    def rekeyed(self, last: Serving, keys: dict[str, KeyRecord]) -> Serving:
        """Return `last` with the API keys of a document that could not be applied."""
        document = last.document.model_copy(update={"keys": keys})
        return last._replace(document=document, keys=self._keys(document, last.keys))

    async def check(self, last: Serving, document: ControlDocument) -> None:
        """Raise BadDocument where `document` could not be applied whole.

        A classifier that is lost already keeps nobody from changing something else: a key may have to be revoked.
        """
        made = await self.next(last, document)
        held = {name: tuning.classifier for name, tuning in last.document.groups.items()}
        lost = {name: why for name, why in made.missing.items() if document.groups[name].classifier != held.get(name)}
        if lost:
            raise BadDocument([Mistake(f"groups.{name}.classifier", why) for name, why in lost.items()])

    async def _classifiers(
        self, config: Config, document: ControlDocument
    ) -> tuple[dict[str, Trained], dict[str, str]]:
        """Return the groups' own classifiers, and why those are missing that cannot be had. Raises BadDocument."""
        try:
            found = await asyncio.to_thread(self._configured, config)
        except ArtefactError as error:
            raise BadDocument([Mistake("groups", str(error))]) from None
        missing = {}
        for name, tuning in document.groups.items():
            if not tuning.classifier:
                continue
            try:
                found[name] = await self._artefacts.get(tuning.classifier)
            except ArtefactError as error:
                missing[name] = str(error)
        return found, missing

    def _configured(self, config: Config) -> dict[str, Trained]:
        """Return the classifiers that the configuration's groups name. Raises ArtefactError."""
        return {name: self._file(group.classifier) for name, group in config.groups.items() if group.classifier}

    def _file(self, path: str) -> Trained:
        try:
            now = Path(path).stat()
        except OSError as error:
            raise ArtefactError(f"{path}: cannot be read: {error.strerror}") from None
        key = (path, now.st_mtime_ns, now.st_size)
        if key not in self._files:
            # The file as it is now takes the place of what it was.
            self._files = {k: v for k, v in self._files.items() if k[0] != path} | {key: load(artefact=path)}
        return self._files[key]

    def _keys(self, document: ControlDocument, last: KeyTable | None) -> KeyTable | None:
        config = self.base.config
        if document.keys is None and not config.keys and not config.server.require_key:
            return None
        return KeyTable({**(document.keys or {}), **config.keys}, last, claims=self._claims)


def _untuned(document: ControlDocument, missing: Collection[str]) -> ControlDocument:
    """Return the document without these groups' thresholds, which were made for a classifier that is missing."""
    if not missing:
        return document
    groups = {name: tuning for name, tuning in document.groups.items() if name not in missing}
    return document.model_copy(update={"groups": groups})

"""What a request is served with: one immutable value, taken once by each request and swapped whole."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from classifier import Classifier
from router.cache.secret import CacheSetupError
from router.config.runtime import Runtime
from router.config.schema import Config
from router.control.apply import BadDocument, Mistake, check_tuning, next_runtime
from router.control.document import ControlDocument
from router.keys.pace import Pace
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
        scorer: Classifier,
        env: Mapping[str, str],
        log: logging.Logger,
        pace: Pace | None = None,
    ) -> None:
        self._pace = pace if pace is not None else Pace()
        self.base = base
        self._scorer = scorer
        self._env = env
        self._log = log

    def first(self) -> Serving:
        """Return what the file alone says. Raises CacheSetupError."""
        fleet = Fleet(self.base, self._env, self._scorer.thresholds)
        decider = decider_of(self._scorer, self.base.config)
        document = ControlDocument()
        caching = build_caching(self.base, decider, self._env, self._log)
        return Serving(document, self.base, fleet, decider, caching, self._keys(document, None))

    def next(self, last: Serving, document: ControlDocument) -> Serving:
        """Return what `document` says, with nothing of `last` changed. Raises BadDocument."""
        same = document.config == last.document.config
        check_tuning(document)
        runtime = last.runtime if same else next_runtime(self.base, document)
        fleet = Fleet(runtime, self._env, self._scorer.thresholds, document, last.fleet)
        keys = last.keys if document.keys == last.document.keys else self._keys(document, last.keys)
        if same and fleet.groups.keys() == last.fleet.groups.keys():
            return last._replace(document=document, fleet=fleet, keys=keys)
        decider = decider_of(self._scorer, runtime.config)
        try:
            caching = build_caching(runtime, decider, self._env, self._log, last.caching)
        except CacheSetupError as error:
            raise BadDocument([Mistake("cache", str(error))]) from None
        return Serving(document, runtime, fleet, decider, caching, keys)

    def check(self, last: Serving, document: ControlDocument) -> None:
        """Raise BadDocument where `document` could not be applied."""
        self.next(last, document)

    def _keys(self, document: ControlDocument, last: KeyTable | None) -> KeyTable | None:
        if document.keys is None and not self.base.config.keys:
            return None
        return KeyTable({**(document.keys or {}), **self.base.config.keys}, last, pace=self._pace)

"""From the configuration that a worker started with and a control document to the next one. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from backends.settings import BackendSettings
from router.config.describe import at, nullable
from router.config.load import validate
from router.config.problems import ConfigError
from router.config.runtime import Runtime, RuntimeVariant
from router.config.schema import Config
from router.config.variant import LAUNCHED, given
from router.control.document import ControlDocument
from router.control.follow import Refused
from router.control.live import is_live, why_fixed
from router.control.merge import Path, changes, merge

_NAME = "the change"


class Mistake(NamedTuple):
    """One thing that is wrong with a document."""

    field: str
    """Keys from the top, with dots."""
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class BadDocument(Refused):
    """A document that cannot be applied; `mistakes` lists all that was found."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        super().__init__("; ".join(map(str, mistakes)))
        self.mistakes = mistakes


def next_runtime(base: Runtime, document: ControlDocument) -> Runtime:
    """Return what `document` makes of `base`, the worker's own file. Raises BadDocument; then nothing is changed.

    Its configuration is laid over the file's as a JSON merge patch (null: the field's default, or null where the
    field may be null). Variants of running servers follow the configuration; those that Bitgear started stay as they
    were started.
    """
    check_tuning(document)
    mistakes: list[Mistake] = []
    if not document.config:
        return base
    before = plain(base.config)
    try:
        config = validate(merge(before, document.config, _keeps_null), _NAME)
    except ConfigError as error:
        raise BadDocument([_mistake(p.field, str(p)) for p in error.problems]) from None
    mistakes.extend(
        Mistake(path, f"cannot change while Bitgear runs ({why_fixed(path)}): change the file, and start again")
        for path, _, _ in changes(before, plain(config))
        if not is_live(path)
    )
    if mistakes:
        raise BadDocument(mistakes)
    return base.model_copy(update={"config": config, "variants": _variants(base, config)})


def check_tuning(document: ControlDocument) -> None:
    """Raise BadDocument where a tuned threshold or bound is out of its range."""
    mistakes = list(_tuning_mistakes(document))
    if mistakes:
        raise BadDocument(mistakes)


def plain(config: Config) -> dict[str, Any]:
    """Return a configuration as plain JSON values, all defaults filled in."""
    return config.model_dump(mode="json")


def _keeps_null(path: Path) -> bool:
    fragment = at(path)
    return fragment is not None and nullable(fragment)


def _mistake(field: str, text: str) -> Mistake:
    message = text.removeprefix(f"{_NAME}: ")
    return Mistake(field, message.removeprefix(f"{field}: ") if field else message)


def _tuning_mistakes(document: ControlDocument) -> Iterator[Mistake]:
    for name, tuning in document.groups.items():
        told = [("thresholds", tuning.thresholds)]
        if tuning.canary is not None:
            told.append(("canary.thresholds", tuning.canary.thresholds))
        for where, thresholds in told:
            for precision, value in thresholds.items():
                if not 0 <= value <= 1:
                    yield Mistake(f"groups.{name}.{where}.{precision}", f"{value} is not in [0, 1]")
        for precision, (low, high) in tuning.bounds.items():
            if not 0 <= low <= high <= 1:
                yield Mistake(f"groups.{name}.bounds.{precision}", f"[{low}, {high}] is no range within [0, 1]")


def _variants(base: Runtime, config: Config) -> tuple[RuntimeVariant, ...]:
    running = {(v.group, v.variant): v for v in base.variants}
    started = {(name, b.variant): b for name, group in base.config.groups.items() for b in group.backends}
    # Groups that no file names were given to the worker as they are.
    found = [v for v in base.variants if v.group not in base.config.groups and v.group not in config.groups]
    mistakes = []
    for name, group in config.groups.items():
        for index, backend in enumerate(group.backends):
            was, variant = started.get((name, backend.variant)), running.get((name, backend.variant))
            if was is not None and variant is not None and was == backend:
                found.append(variant)
            elif backend.kind not in LAUNCHED:
                found.append(given(name, backend))
            elif was is not None and variant is not None and _same_server(was, backend):
                live = {"price": backend.price, "last_resort": backend.is_last_resort}
                found.append(variant.model_copy(update=live))
            else:
                field = f"groups.{name}.backends[{index}]"
                mistakes.append(Mistake(field, f"servers of kind {backend.kind} are only started by `bitgear up`"))
    if not found and base.variants:
        mistakes.append(Mistake("groups", "no variant would be left"))
    if mistakes:
        raise BadDocument(mistakes)
    return tuple(found)


def _same_server(was: BackendSettings, now: BackendSettings) -> bool:
    return was.model_copy(update={"price": now.price, "last_resort": now.last_resort}) == now


__all__ = ["BadDocument", "Mistake", "check_tuning", "next_runtime", "plain"]

"""JSON merge patches (RFC 7396): laying one on, making one, and telling two documents' differences. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

Path = tuple[str | int, ...]


class Change(NamedTuple):
    """One place at which two documents differ; None: nothing is there."""

    path: str
    """Keys from the top, with dots."""
    before: Any
    after: Any


def _drop(path: Path) -> bool:
    return False


def merge(base: Any, patch: Any, keeps_null: Callable[[Path], bool] = _drop, path: Path = ()) -> Any:
    """Return `base` with `patch` laid on it; neither is changed.

    As RFC 7396 says: mappings merge, null takes a key out, everything else replaces. Where `keeps_null` holds, null
    is itself the value.
    """
    if not isinstance(patch, Mapping):
        return patch
    out: dict[str, Any] = dict(base) if isinstance(base, Mapping) else {}
    for key, value in patch.items():
        here = (*path, key)
        if value is not None:
            out[key] = merge(out.get(key), value, keeps_null, here)
        elif keeps_null(here):
            out[key] = None
        else:
            out.pop(key, None)
    return out


def difference(base: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the smallest patch that makes `wanted` of `base`."""
    patch: dict[str, Any] = {key: None for key in base if key not in wanted}
    for key, value in wanted.items():
        old = base.get(key)
        if key in base and _same(old, value):
            continue
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            patch[key] = difference(old, value)
        else:
            patch[key] = value
    return patch


def changes(before: Any, after: Any, path: str = "") -> Iterator[Change]:
    """Yield each place where the two differ, in the order of their keys; lists differ as a whole."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(k for k in after if k not in before)]:
            yield from changes(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
    elif not _same(before, after):
        yield Change(path, before, after)


def _same(one: Any, other: Any) -> bool:
    # In Python True == 1; in JSON they are two values, also deep inside a list.
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(v, other[k]) for k, v in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)


__all__ = ["Change", "changes", "difference", "merge"]

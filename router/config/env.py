"""Environment overrides: `BITGEAR_SERVER__PORT=9000` sets `server.port`.

Two underscores go one level down; a list's item is its index; lists and mappings are written as JSON or YAML. An
empty value counts as unset. Names without `__` that are not a top-level field belong to somebody else and are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from router.config.describe import Fragment, at, child, expected, known, nearest, nullable, resolved, schema
from router.config.problems import ConfigError, Origin, Path, Problem, shown
from router.config.yamlfile import parse

PREFIX = "BITGEAR_"
FILE_VARIABLE = "BITGEAR_CONFIG"
_KUBERNETES = ("tcp://", "udp://", "sctp://")


@dataclass(frozen=True)
class Override:
    """One value from the environment, and the variable it came from."""

    variable: str
    path: Path
    value: object


def overrides(env: Mapping[str, str], data: object) -> tuple[list[Override], list[Problem]]:
    """The overrides in `env`, shallow ones first, and what is wrong with any. `data` gives the spelling of its keys."""
    found: list[Override] = []
    problems: list[Problem] = []
    for variable in sorted(env, key=lambda v: (v.count("__"), v)):
        if not variable.startswith(PREFIX) or variable == FILE_VARIABLE or not env[variable].strip():
            continue
        if env[variable].startswith(_KUBERNETES):
            # Kubernetes sets BITGEAR_SERVER_PORT=tcp://... beside a service of that name.
            continue
        try:
            override = _override(variable, env[variable], data)
        except ConfigError as error:
            problems.extend(error.problems)
        else:
            if override is not None:
                found.append(override)
    return found, problems


def apply(data: object, override: Override) -> tuple[object, Problem | None]:
    """`data` with the override set, untouched elsewhere; or the problem that prevents it."""
    if not override.path:
        return override.value, None
    head, rest = override.path[0], override.path[1:]
    if data is None:
        data = [] if isinstance(head, int) else {}
    deeper = Override(override.variable, rest, override.value)
    if isinstance(data, list):
        index = int(head) if str(head).isdecimal() and len(str(head)) < 7 else -1
        if not 0 <= index <= len(data):
            hint = f"the list has {len(data)} items, counted from 0"
            return data, Problem(Origin(override.variable), "", f"the index {head}", "an index of the list", hint)
        value, problem = apply(data[index] if index < len(data) else None, deeper)
        return [*data[:index], value, *data[index + 1 :]], problem
    if not isinstance(data, dict):
        return data, Problem(Origin(override.variable), "", f"{shown(data)} above it", "a mapping to set a field in")
    value, problem = apply(data.get(head), deeper)
    return {**data, head: value}, problem


def _override(variable: str, text: str, data: object) -> Override | None:
    parts = variable[len(PREFIX) :].split("__")
    if len(parts) == 1 and parts[0].lower() not in schema()["properties"]:
        meant = _single_underscores().get(variable)
        if meant is None:
            return None
        raise ConfigError(
            [Problem(Origin(variable), "", "one underscore", "two for each level", f"did you mean {meant}?")]
        )
    path: list[str | int] = []
    fragment: Fragment = schema()
    here = data
    for part in parts:
        fragment = resolved(fragment)
        name = _spelling(part, here, fragment)
        below = child(fragment, name) if name else None
        if below is None:
            raise ConfigError([_unknown(variable, part, tuple(path))])
        step: str | int = int(name) if fragment.get("type") == "array" else name
        here = _inside(here, step)
        path.append(step)
        fragment = below
    return Override(variable, tuple(path), _parsed(variable, text, fragment))


def _inside(data: object, step: str | int) -> object:
    if isinstance(data, dict):
        return data.get(step)
    if isinstance(data, list) and isinstance(step, int) and step < len(data):
        return data[step]
    return None


def _spelling(part: str, data: object, fragment: Fragment) -> str:
    """Variables are upper case: a group's own spelling comes from the file where it names one."""
    lower = part.lower()
    if lower in fragment.get("properties", ()):
        return lower
    if isinstance(data, dict):
        return next((str(k) for k in data if str(k).lower() == lower), lower)
    return lower if len(lower) < 7 or not lower.isdigit() else ""


def _unknown(variable: str, part: str, path: Path) -> Problem:
    names = known(path)
    near = nearest(part, names)
    hint = f"did you mean {near.upper()}?" if near else ""
    where = PREFIX + "__".join(str(p).upper() for p in path)
    wanted = f"one of {', '.join(n.upper() for n in names)}" if names else f"no more levels below {where}"
    return Problem(Origin(variable), "", f"the unknown field {part}", wanted, hint)


def _parsed(variable: str, text: str, fragment: Fragment) -> object:
    """Text as it is where text is expected; otherwise YAML, in which `fp16,int8` is a list where one is expected."""
    if nullable(fragment) and text.strip() in ("null", "~"):
        return None
    kind = resolved(fragment).get("type")
    if kind == "string":
        return text
    try:
        parsed = parse(text, variable)
    except ConfigError as error:
        raise ConfigError([_named(p, variable, expected(fragment)) for p in error.problems]) from None
    if parsed.problems:
        raise ConfigError([_named(p, variable, "") for p in parsed.problems])
    if kind == "array" and not isinstance(parsed.data, list):
        items = text.split(",")
        each = resolved(resolved(fragment).get("items", {}))
        if each.get("type") in ("string", "integer"):
            return [parse(item.strip(), variable).data for item in items]
    return parsed.data


def _named(problem: Problem, variable: str, wanted: str) -> Problem:
    return Problem(Origin(variable), problem.field, problem.found, wanted or problem.expected, problem.hint)


def _single_underscores() -> dict[str, str]:
    """`BITGEAR_SERVER_PORT` -> `BITGEAR_SERVER__PORT`, for every field with a fixed path."""
    return {PREFIX + "_".join(path).upper(): PREFIX + "__".join(path).upper() for path in _paths(()) if len(path) > 1}


def _paths(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    fragment = at(path)
    names = resolved(fragment).get("properties", ()) if fragment is not None else ()
    for name in names:
        yield (*path, name)
        yield from _paths((*path, name))


__all__ = ["FILE_VARIABLE", "PREFIX", "Override", "apply", "overrides"]

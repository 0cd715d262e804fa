"""From a file and the environment to a `Config`, or every mistake at once."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from router.config.describe import Fragment, at, child, expected, known, nearest, nullable, resolved, schema
from router.config.env import FILE_VARIABLE, apply, overrides
from router.config.problems import ConfigError, Origin, Path, Problem, dotted, masked, shown
from router.config.schema import Config
from router.config.yamlfile import MAX_BYTES, parse

DEFAULTS = "defaults"
"""Name of the source when there is no file."""
_HIDDEN = "text that is not shown"


@dataclass
class _Sources:
    """Plain data, and where each part of it was written."""

    name: str
    data: object = None
    origins: dict[Path, Origin] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def origin(self, path: Path) -> Origin:
        """Where the value at `path`, or the nearest thing around it, was written."""
        for length in range(len(path), -1, -1):
            around = path[:length]
            if around in self.origins:
                return self.origins[around]
            # A variable that sets something deeper made this part.
            inside = [origin for where, origin in self.origins.items() if length and where[:length] == around]
            if inside:
                return inside[0]
        return Origin(self.name)


def load(path: pathlib.Path | None, env: Mapping[str, str]) -> Config:
    """The effective configuration: defaults, then the file (`path`, or BITGEAR_CONFIG), then `env`'s overrides.

    Raises ConfigError with every mistake found.
    """
    where = find(path, env)
    sources = _Sources(str(where) if where else DEFAULTS)
    if where is not None:
        parsed = parse(read(where), sources.name)
        sources.data, sources.problems = parsed.data, parsed.problems
        sources.origins = {p: Origin(sources.name, line) for p, line in parsed.lines.items()}
    _override(sources, env)
    return _validated(sources)


def validate(data: object, name: str) -> Config:
    """The configuration in plain `data`, which came from `name`. Raises ConfigError with every mistake found."""
    return _validated(_Sources(name, data))


def find(path: pathlib.Path | None, env: Mapping[str, str]) -> pathlib.Path | None:
    """The file that `load` reads; None: built-in defaults."""
    if path is not None:
        return path
    named = env.get(FILE_VARIABLE, "").strip()
    return pathlib.Path(named) if named else None


def read(path: pathlib.Path) -> str:
    """A configuration file's text. Raises ConfigError when it cannot be read, is too long or isn't UTF-8."""
    origin = Origin(str(path))
    wanted = "a YAML file"
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError([Problem(origin, "", "no such file", wanted)]) from None
    except IsADirectoryError:
        raise ConfigError([Problem(origin, "", "a directory", wanted)]) from None
    except (OSError, ValueError) as error:
        found = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigError([Problem(origin, "", found, wanted)]) from None
    if len(raw) > MAX_BYTES:
        raise ConfigError([Problem(origin, "", "a longer file", f"at most {MAX_BYTES} bytes")])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        found = f"the byte 0x{raw[error.start]:02x}, which is not UTF-8"
        raise ConfigError([Problem(Origin(str(path), line), "", found, "a file in UTF-8")]) from None


def _override(sources: _Sources, env: Mapping[str, str]) -> None:
    found, problems = overrides(env, sources.data)
    sources.problems.extend(problems)
    for override in found:
        sources.data, problem = apply(sources.data, override)
        if problem is not None:
            sources.problems.append(problem)
            continue
        depth = len(override.path)
        kept = {p: o for p, o in sources.origins.items() if p[:depth] != override.path}
        sources.origins = {**kept, override.path: Origin(override.variable)}


def _validated(sources: _Sources) -> Config:
    data = {} if sources.data is None else sources.data
    if not isinstance(data, dict):
        problem = Problem(sources.origin(()), "", shown(data), "a mapping of " + ", ".join(known(())))
        raise ConfigError([*sources.problems, problem])
    mistakes = list(sources.problems)
    mistakes.extend(_new(_lenient(data, (), schema(), sources), mistakes))
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        problems = [_problem(e, sources) for e in error.errors(include_url=False) if not _echo(e)]
        raise ConfigError([*mistakes, *_new(problems, mistakes)]) from None
    if mistakes:
        raise ConfigError(mistakes)
    return config


def _new(problems: Iterable[Problem], told: Iterable[Problem]) -> list[Problem]:
    """Those of `problems` whose field isn't told already in other words."""
    known_places = {(p.origin, p.field) for p in told}
    return [p for p in problems if (p.origin, p.field) not in known_places]


def _echo(error: ErrorDetails) -> bool:
    """Whether pydantic counts a list as too short only because some of its items are wrong."""
    least = error.get("ctx", {}).get("min_length", 0)
    return error["type"] == "too_short" and isinstance(error["input"], list) and len(error["input"]) >= least


def _problem(error: ErrorDetails, sources: _Sources) -> Problem:
    path: Path = tuple(error["loc"])
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown(path, sources)
    if path and path[-1] == "[key]":
        path = path[:-1]
        names = resolved(resolved(at(path[:-1]) or {}).get("propertyNames", {})).get("enum", ())
        near = nearest(str(path[-1]), names)
        hint = f"did you mean {near}?" if near else ""
        wanted = "one of " + ", ".join(map(str, names)) if names else error["msg"]
        return Problem(sources.origin(path), dotted(path), f"the unknown key {str(path[-1])!r:.60}", wanted, hint)
    origin, name = sources.origin(path), str(path[-1]) if path else ""
    if kind == "value_error":
        return Problem(origin, dotted(path), says=masked(str(context.get("error", error["msg"]))))
    fragment = at(path)
    if kind == "missing":
        return Problem(origin, dotted(path), "nothing", expected(fragment or {}, name), _sentence(fragment))
    wanted = expected(fragment, name) if fragment is not None else error["msg"]
    found = shown(given) if not name.endswith("_env") else _HIDDEN
    return Problem(origin, dotted(path), found, wanted, _hint(given, fragment))


def _unknown(path: Path, sources: _Sources) -> Problem:
    names = known(path[:-1])
    near = nearest(str(path[-1]), names)
    hint = f"did you mean {near}?" if near else ""
    return Problem(sources.origin(path), dotted(path), "an unknown field", "one of " + ", ".join(names), hint)


def _hint(given: object, fragment: Fragment | None) -> str:
    kind = resolved(fragment).get("type") if fragment is not None else None
    if kind == "string" and isinstance(given, bool | int | float):
        return "put it in quotes if it is meant as text"
    if given is None and fragment is not None and not nullable(fragment):
        return "leave the line out to take the default"
    return ""


def _sentence(fragment: Fragment | None) -> str:
    return str(fragment.get("description", "")) if fragment is not None else ""


def _lenient(data: object, path: Path, fragment: Fragment, sources: _Sources) -> Iterator[Problem]:
    """Mistakes that pydantic lets pass: `true` as a number, a secret where its variable's name belongs."""
    inside = resolved(fragment)
    if isinstance(data, dict | list):
        for key, item in data.items() if isinstance(data, dict) else enumerate(data):
            below = child(inside, key)
            if below is not None:
                yield from _lenient(item, (*path, key), below, sources)
        return
    name = str(path[-1]) if path else ""
    wanted = inside.get("type")
    switch = isinstance(data, bool) and wanted in ("integer", "number")
    if switch or (isinstance(data, str) and wanted == "number" and _not_finite(data)):
        yield Problem(sources.origin(path), dotted(path), shown(data), expected(fragment, name))
    elif isinstance(data, str) and name.endswith("_env") and not data.isidentifier():
        hint = "the secret itself belongs into the environment"
        yield Problem(sources.origin(path), dotted(path), _HIDDEN, "the name of an environment variable", hint)


def _not_finite(text: str) -> bool:
    try:
        return not math.isfinite(float(text))
    except ValueError:
        return False


__all__ = ["DEFAULTS", "find", "load", "read", "validate"]

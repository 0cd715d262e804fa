"""The configuration as YAML: plain, or with every field's sentence, unit and bounds as comments.

`config/default.yaml` is `commented(Config())`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from backends.settings import BackendSettings
from router.config.describe import Fragment, child, defaults, expected, resolved, schema, unit
from router.config.problems import masked
from router.config.schema import Config, GroupConfig

_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|(^|_)KEY$", re.IGNORECASE)
_WIDTH = 118
_HEADER = """\
Bitgear's configuration: every field, with its default.
A file needs only what differs. The environment overrides it: BITGEAR_SERVER__PORT=9000 sets server.port.
"""
_TEMPLATE_NOTE = """\
No group: `bitgear up` serves `local`. A group with one variant, every field with its default (without the first # of
each line it works):"""


def redacted(data: Any, *, secret: bool = False) -> Any:
    """`data` with passwords in URLs and values of secret-looking environment variables hidden."""
    if isinstance(data, Mapping):
        return {
            key: {k: "***" if _SECRET.search(k) else v for k, v in item.items()}
            if key == "env" and isinstance(item, Mapping)
            else redacted(item)
            for key, item in data.items()
        }
    if isinstance(data, list | tuple):
        return [redacted(item) for item in data]
    return masked(data) if isinstance(data, str) else data


def plain(config: Config) -> str:
    """The effective configuration as YAML, secrets hidden."""
    return yaml.safe_dump(redacted(defaults(config)), sort_keys=False, allow_unicode=True, width=_WIDTH)


def commented(config: Config) -> str:
    """The effective configuration as YAML, each field under a comment that says what it is and what may stand there."""
    lines = [f"# {line}" for line in _HEADER.splitlines()]
    lines.extend(_mapping(redacted(defaults(config)), schema(), 0))
    if not config.groups:
        lines.extend(f"# {line}" for line in _TEMPLATE_NOTE.splitlines())
        lines.extend(f"#{line}" if line else "#" for line in _template())
    return "\n".join(lines) + "\n"


def _template() -> Iterator[str]:
    backend = BackendSettings(precision="fp16", urls=("http://127.0.0.1:8000",))
    group = defaults(GroupConfig(backends=(backend,)))
    yield "groups:"
    yield "  my-model:"
    group_fragment = resolved(resolved(child(schema(), "groups") or {})["additionalProperties"])
    yield from _mapping(group, group_fragment, 2)


def _mapping(data: Mapping[str, Any], fragment: Fragment, depth: int) -> Iterator[str]:
    for key, value in data.items():
        inside = child(fragment, key) or {}
        if depth == 0:
            yield ""
        # Keys that the operator names (groups, precisions of thresholds) were described once, above them.
        if key in fragment.get("properties", {}):
            yield from _comment(inside, key, depth)
        yield from _field(key, value, inside, depth)


def _field(key: str, value: Any, fragment: Fragment, depth: int) -> Iterator[str]:
    pad = "  " * depth
    name = yaml.safe_dump({key: None}, allow_unicode=True).rsplit(":", 1)[0]
    below = resolved(fragment)
    if isinstance(value, Mapping) and value:
        yield f"{pad}{name}:"
        yield from _mapping(value, below, depth + 1)
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        yield f"{pad}{name}:"
        for item in value:
            lines = [line for line in _mapping(item, resolved(below.get("items", {})), depth + 2) if line]
            first = next(i for i, line in enumerate(lines) if not line.lstrip().startswith("#"))
            # The dash stands before the first key; comments of that key stand above it.
            yield from (f"{pad}  {line.lstrip()}" for line in lines[:first])
            yield f"{pad}  - {lines[first].lstrip()}"
            yield from lines[first + 1 :]
    else:
        yield f"{pad}{name}: {_inline(value)}"
        # What is not there may still be set: its fields follow, commented out. Groups have their own template.
        entry = resolved(below.get("additionalProperties") or {})
        if value == {} and entry.get("properties") and key != "groups":
            yield f"#{pad}  NAME:"
            yield from _unset(entry, depth + 2)
        elif value is None and below.get("properties"):
            yield from _unset(below, depth + 1)


def _unset(fragment: Fragment, depth: int) -> Iterator[str]:
    fields = {name: inside.get("default") for name, inside in fragment["properties"].items()}
    yield from (f"#{line}" for line in _mapping(fields, fragment, depth))


def _inline(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


def _comment(fragment: Fragment, name: str, depth: int) -> Iterator[str]:
    text = str(fragment.get("description", "")).replace("None:", "null:")
    kind = resolved(fragment)
    if "properties" not in kind and "properties" not in resolved(
        kind.get("items") or kind.get("additionalProperties") or {}
    ):
        # The unit is named once: in the sentence, or in the brackets.
        wanted = expected(fragment, "" if unit(name) in text else name)
        text += f" [{wanted}]"
    pad = "  " * depth + "# "
    yield from textwrap.wrap(text, _WIDTH, initial_indent=pad, subsequent_indent=pad, break_long_words=False)


__all__ = ["commented", "plain", "redacted"]

"""The smallest value that a JSON schema accepts."""

from __future__ import annotations

import math
from typing import Any
from urllib.parse import unquote

from backends.simulator.pattern import example

_DEPTH = 32
_FORMATS = {
    "date-time": "2026-01-01T00:00:00Z",
    "date": "2026-01-01",
    "time": "00:00:00Z",
    "duration": "PT1S",
    "email": "a@example.com",
    "hostname": "example.com",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


class UnsupportedSchemaError(ValueError):
    """A schema that accepts nothing, is none, or is beyond the simulator."""


def instance(schema: Any) -> Any:
    """A minimal value that `schema` accepts. Raises UnsupportedSchemaError."""
    try:
        return _Builder(schema).value(schema, 0)
    except UnsupportedSchemaError:
        raise
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise UnsupportedSchemaError(f"Invalid JSON schema: {error}") from None


class _Builder:
    def __init__(self, root: Any) -> None:
        self._root = root

    def value(self, schema: Any, depth: int) -> Any:
        """A value of `schema`, which is a part of the root."""
        if schema is True or schema == {}:
            return None
        if not isinstance(schema, dict):
            raise UnsupportedSchemaError(f"Invalid JSON schema: {schema!r}")
        if depth > _DEPTH:
            raise UnsupportedSchemaError("JSON schema is nested too deeply or requires itself")
        if "$ref" in schema:
            return self.value(self._resolve(schema["$ref"]), depth + 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            if not schema["enum"]:
                raise UnsupportedSchemaError("Invalid JSON schema: empty enum")
            return min(schema["enum"], key=lambda item: len(str(item)))
        if "allOf" in schema:
            return self.value(self._merged(schema), depth + 1)
        for union in ("anyOf", "oneOf"):
            if union in schema:
                base = {key: value for key, value in schema.items() if key != union}
                return self._first(
                    [self._with(base, branch) if isinstance(branch, dict) else branch for branch in schema[union]],
                    depth,
                )
        kind = schema.get("type")
        if isinstance(kind, list):
            return self._first([{**schema, "type": one} for one in sorted(kind, key=lambda one: one != "null")], depth)
        if kind is None:
            kind = self._guess(schema)
        if kind not in _TYPES:
            raise UnsupportedSchemaError(f"Grammar error: Invalid type: {kind}")
        build = getattr(self, f"_{kind}")
        return build(schema, depth)

    def _first(self, branches: list[Any], depth: int) -> Any:
        """The first branch that has a value: a recursive one may not."""
        problem = UnsupportedSchemaError("Invalid JSON schema: empty union")
        for branch in branches:
            try:
                return self.value(branch, depth + 1)
            except UnsupportedSchemaError as error:
                problem = error
        raise problem

    def _resolve(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise UnsupportedSchemaError(f"Unsupported reference {reference!r} in JSON schema")
        found = self._root
        for part in reference[1:].split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(key)] if isinstance(found, list) else found[key]
            except (KeyError, IndexError, TypeError):
                raise UnsupportedSchemaError(f"Unknown reference {reference!r} in JSON schema") from None
        return found

    def _merged(self, schema: dict[str, Any]) -> dict[str, Any]:
        merged = {key: value for key, value in schema.items() if key != "allOf"}
        for branch in schema["allOf"]:
            while isinstance(branch, dict) and "$ref" in branch:
                branch = self._resolve(branch["$ref"])
            if isinstance(branch, dict):
                merged = self._with(merged, self._merged(branch) if "allOf" in branch else branch)
        return merged

    @staticmethod
    def _with(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
        """Both: properties and required names joined, other keywords from `more`."""
        merged = {**base, **more}
        if "properties" in base and "properties" in more:
            merged["properties"] = {**base["properties"], **more["properties"]}
        if "required" in base and "required" in more:
            merged["required"] = [*base["required"], *more["required"]]
        return merged

    @staticmethod
    def _guess(schema: dict[str, Any]) -> str:
        for kind, keywords in (
            ("object", ("properties", "required", "additionalProperties", "minProperties")),
            ("array", ("items", "prefixItems", "minItems")),
            ("string", ("pattern", "format", "minLength", "maxLength")),
            ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
        ):
            if any(keyword in schema for keyword in keywords):
                return kind
        return "null"

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        extra = schema.get("additionalProperties", True)
        required = dict.fromkeys(schema.get("required", ()))
        # in the order of the properties, as a grammar would write them
        names = [
            *(name for name in properties if name in required),
            *(name for name in required if name not in properties),
        ]
        result = {name: self.value(properties.get(name, extra), depth + 1) for name in names}
        for name in properties:
            if len(result) >= schema.get("minProperties", 0):
                break
            if name not in result:
                result[name] = self.value(properties[name], depth + 1)
        return result

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        first = schema.get("prefixItems", [])
        items = schema.get("items", True)
        least = schema.get("minItems", 0)
        result: list[Any] = [
            self.value(first[i] if i < len(first) else items, depth + 1) for i in range(min(least, 1000))
        ]
        if schema.get("uniqueItems") and len(result) > 1:
            if isinstance(items, dict) and "enum" in items:
                return list(items["enum"][:least])
            result = [self._distinct(value, index) for index, value in enumerate(result)]
        return result

    @staticmethod
    def _distinct(value: Any, index: int) -> Any:
        if isinstance(value, str):
            return value + "a" * index
        return value + index if isinstance(value, int | float) and not isinstance(value, bool) else value

    def _string(self, schema: dict[str, Any], depth: int) -> str:
        text: str
        if "pattern" in schema:
            text = example(schema["pattern"])
        elif schema.get("format") in _FORMATS:
            return str(_FORMATS[schema["format"]])
        else:
            text = "simulated"
            if "maxLength" in schema:
                text = text[: int(schema["maxLength"])]
        least = min(int(schema.get("minLength", 0)), 10_000)
        return text + "a" * max(0, least - len(text))

    def _integer(self, schema: dict[str, Any], depth: int) -> int:
        step = schema.get("multipleOf", 1)
        low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
        low = (
            max(low, math.floor(schema.get("exclusiveMinimum", -math.inf)) + 1) if "exclusiveMinimum" in schema else low
        )
        high = min(high, math.ceil(schema["exclusiveMaximum"]) - 1) if "exclusiveMaximum" in schema else high
        value = 0 if low <= 0 <= high else math.ceil(low / step) * step if low > 0 else math.floor(high / step) * step
        if not low <= value <= high or value != int(value):
            raise UnsupportedSchemaError("JSON schema accepts no integer")
        return int(value)

    def _number(self, schema: dict[str, Any], depth: int) -> float:
        low = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf))
        high = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf))
        step = schema.get("multipleOf")
        candidates = [0.0]
        if math.isfinite(low):
            candidates += (
                [math.ceil(low / step) * step, (math.floor(low / step) + 1) * step] if step else [low, low + 1]
            )
        if math.isfinite(high):
            candidates += (
                [math.floor(high / step) * step, (math.ceil(high / step) - 1) * step] if step else [high, high - 1]
            )
        if math.isfinite(low) and math.isfinite(high):
            candidates.append((low + high) / 2)
        for value in candidates:
            if low <= value <= high and value not in (schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")):
                return int(value) if float(value).is_integer() else float(value)
        raise UnsupportedSchemaError("JSON schema accepts no number")

    def _boolean(self, schema: dict[str, Any], depth: int) -> bool:
        return True

    def _null(self, schema: dict[str, Any], depth: int) -> None:
        return None


__all__ = ["UnsupportedSchemaError", "instance"]

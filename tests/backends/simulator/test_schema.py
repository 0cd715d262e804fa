"""The instances are checked by a validator of the keywords used here."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends.simulator.schema import UnsupportedSchemaError, instance

_WORDS = ["type", "enum", "const", "anyOf", "oneOf", "allOf", "properties", "required", "additionalProperties", "items"]
_WORDS += ["minProperties", "prefixItems", "minItems", "uniqueItems", "pattern", "format", "minLength", "maxLength"]
_WORDS += ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "$ref", "object", "array"]
_KINDS = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def accepts(schema: Any, value: Any) -> bool:
    if isinstance(schema, bool):
        return schema
    kind = schema.get("type")
    if kind in _KINDS and not isinstance(value, _KINDS[kind]):
        return False
    if kind in ("integer", "number"):
        if isinstance(value, bool) or not isinstance(value, int | float) or (kind == "integer" and value != int(value)):
            return False
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        above, below = schema.get("exclusiveMinimum", value - 1), schema.get("exclusiveMaximum", value + 1)
        if not (
            low <= value <= high
            and above < value < below
            and value % schema.get("multipleOf", 1 if kind == "integer" else value or 1) == 0
        ):
            return False
    if kind == "string":
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            return False
        if "pattern" in schema and not re.search(schema["pattern"], value):
            return False
    if kind == "array" and len(value) < schema.get("minItems", 0):
        return False
    if kind == "array" and not all(accepts(schema.get("items", True), item) for item in value):
        return False
    if kind == "object":
        properties = schema.get("properties", {})
        if not set(schema.get("required", ())) <= set(value):
            return False
        if not all(
            accepts(properties.get(name, schema.get("additionalProperties", True)), item)
            for name, item in value.items()
        ):
            return False
    return value in schema.get("enum", [value])


_LEAVES = st.one_of(
    st.fixed_dictionaries({"type": st.just("boolean")}),
    st.fixed_dictionaries({"type": st.just("null")}),
    st.builds(
        lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more},
        st.integers(-50, 50),
        st.integers(0, 9),
    ),
    st.builds(
        lambda low, more: {"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": low + more},
        st.floats(-50, 50),
        st.floats(0.1, 9),
    ),
    st.builds(
        lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more},
        st.integers(0, 30),
        st.integers(0, 9),
    ),
    st.builds(lambda values: {"type": "string", "enum": values}, st.lists(st.text(max_size=5), min_size=1)),
)
_SCHEMAS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda items, least: {"type": "array", "items": items, "minItems": least}, inner, st.integers(0, 3)),
        st.builds(
            lambda properties: {
                "type": "object",
                "properties": properties,
                "required": sorted(properties),
                "additionalProperties": False,
            },
            st.dictionaries(st.text(max_size=4), inner, max_size=4),
        ),
    ),
    max_leaves=12,
)


@given(_SCHEMAS)
def test_the_schema_accepts_its_instance(schema: dict[str, Any]) -> None:
    value = instance(schema)
    assert accepts(schema, value)
    assert json.loads(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"const": 5}, 5),
        ({"enum": ["long one", "x"]}, "x"),
        ({"type": ["null", "string"]}, None),
        ({"type": ["string", "integer"]}, "simulated"),
        ({"anyOf": [{"type": "integer", "minimum": 3}, {"type": "null"}]}, 3),
        ({"type": "integer", "minimum": 4, "multipleOf": 5}, 5),
        ({"type": "integer", "exclusiveMinimum": 4}, 5),
        ({"type": "integer", "maximum": -3}, -3),
        ({"type": "integer", "exclusiveMaximum": 0}, -1),
        ({"type": "string", "format": "date"}, "2026-01-01"),
        ({"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"}, "AA-0"),
        ({"type": "object", "properties": {"a": {"type": "boolean"}, "b": {}}, "required": ["a"]}, {"a": True}),
        ({"properties": {"a": {"type": "null"}}, "required": ["a"]}, {"a": None}),
        ({"type": "object", "properties": {"a": {"type": "null"}}, "minProperties": 1}, {"a": None}),
        ({"type": "object", "required": ["z"], "additionalProperties": {"type": "integer"}}, {"z": 0}),
        ({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "minItems": 2}, [1, 2]),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 3, "uniqueItems": True}, [0, 1, 2]),
        ({"allOf": [{"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]},
                    {"properties": {"b": {"const": 2}}, "required": ["b"]}]}, {"a": 1, "b": 2}),
        ({"$defs": {"x": {"const": 7}}, "$ref": "#/$defs/x"}, 7),
        ({}, None),
        (True, None),
    ],
)  # fmt: skip
def test_keywords(schema: Any, expected: Any) -> None:
    assert instance(schema) == expected


def test_a_recursive_schema_takes_the_branch_that_ends() -> None:
    schema = {
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                "required": ["next"],
            }
        },
        "$ref": "#/$defs/node",
    }
    value = instance(schema)
    while value is not None:
        value = value["next"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nope"},
        {"enum": []},
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "number", "minimum": 3, "maximum": 2},
        {"$ref": "#/nowhere"},
        {"$ref": "http://example.com/schema"},
        {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"type": "string", "pattern": "(?=x)y"},
        {"type": "string", "pattern": "("},
        {"type": "string", "minLength": "x"},
        False,
        5,
        {"anyOf": [{"type": "nope"}]},
    ],
)
def test_schemas_that_nothing_fits(schema: Any) -> None:
    with pytest.raises(UnsupportedSchemaError):
        instance(schema)


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(["object", "array"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=3),
    max_leaves=10,
)


@given(_values)
@example({"type": "integer", "minimum": 3, "multipleOf": 0})
@example({"$ref": "#/enum/²", "enum": []})
@example({"type": "number", "minimum": 1e308, "multipleOf": 1e-308})
def test_anything_has_an_instance_or_is_refused(schema: Any) -> None:
    with contextlib.suppress(UnsupportedSchemaError):
        json.dumps(instance(schema))

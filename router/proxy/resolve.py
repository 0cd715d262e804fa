"""From a request's model and headers to a group, a pin, a scenario and bounds."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from router.decision.types import Scenario
from router.keys.table import Admitted
from router.proxy.errors import ApiError, bad_field
from router.proxy.json_body import json_type
from router.state import Fleet, Group

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
Headers = Iterable[tuple[bytes, bytes]]


class Directives(NamedTuple):
    """What the client's headers say."""

    request_id: str
    scenario: str | None = None
    precision: str | None = None
    max_risk: float | None = None


class Target(NamedTuple):
    """What the client asks for."""

    group: Group
    asked: str
    """The model as the client named it."""
    pin: str | None
    """Name of the variant that alone may serve it."""
    scenario: Scenario


def request_id_of(headers: Headers) -> str:
    """Return the client's `x-request-id` where it is a plain one, else a new one."""
    for name, value in headers:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return value.decode("ascii")
    return secrets.token_hex(12)


def read_directives(headers: Headers, request_id: str, scenarios: Mapping[str, Scenario]) -> Directives:
    """Return the `x-bitgear-*` headers, checked. Raises ApiError 400 naming the header."""
    scenario = precision = None
    max_risk = None
    for name, value in headers:
        if not name.startswith(b"x-bitgear-"):
            continue
        text = value.decode("latin-1").strip()
        if name == b"x-bitgear-scenario":
            if text not in scenarios:
                raise bad_field(
                    "x-bitgear-scenario",
                    f"expected one of {', '.join(scenarios)}, found {text[:64]!r}",
                    "invalid_value",
                )
            scenario = text
        elif name == b"x-bitgear-precision":
            precision = text
        elif name == b"x-bitgear-max-risk":
            max_risk = _risk(text)
    return Directives(request_id, scenario, precision, max_risk)


def _risk(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise bad_field("x-bitgear-max-risk", f"expected a number in [0, 1], found {text[:64]!r}", "invalid_value")
    return value


def resolve(model: object, directives: Directives, fleet: Fleet, admitted: Admitted | None = None) -> Target:
    """Return the group and pin that `model` (`group` or `group@variant`) and the headers name.

    Raises ApiError: 400 without a model, 403 for one that the key may not use, 404 for one that does not exist, 400 for pins
    that contradict each other.
    """
    if not isinstance(model, str):
        what = "field required" if model is None else f"expected a string, found {json_type(model)}"
        raise bad_field("model", what, "missing_required_parameter" if model is None else "invalid_type")
    name, at, pin = model.partition("@")
    group = fleet.groups.get(name)
    if group is not None and admitted is not None:
        admitted.check_group(name)
    if group is None or (at and pin not in group.variants):
        known = ", ".join(model_names(fleet, admitted))
        raise ApiError(404, f"The model {model[:128]!r} does not exist. Known: {known}.", "model", "model_not_found")
    wanted: str | None = pin if at else None
    if directives.precision is not None:
        fitting = _variants_of(group, directives.precision)
        if wanted is not None and wanted not in fitting:
            raise bad_field(
                "x-bitgear-precision", f"{directives.precision!r} contradicts the model {model!r}", "invalid_value"
            )
        wanted = wanted or fitting[0]
    scenario = fleet.scenarios[directives.scenario or group.scenario]
    return Target(group, model, wanted, scenario)


def _variants_of(group: Group, name: str) -> list[str]:
    """Return the variants that a precision (or a variant's name) means, those that serve now first."""
    if name in group.variants:
        return [name]
    fitting = [v for v in group.variants.values() if v.spec.precision == name]
    if fitting:
        return [v.name for v in sorted(fitting, key=lambda v: not any(r.ready for r in v.replicas))]
    raise bad_field(
        "x-bitgear-precision",
        f"{group.name!r} has no variant {name[:64]!r}; it has {', '.join(group.variants)}",
        "variant_not_found",
    )


def model_names(fleet: Fleet, admitted: Admitted | None = None) -> list[str]:
    """Return every name that `model` may take (of the groups that the key may use): each group, then its pinned variants."""
    names = []
    for group in fleet.groups.values():
        if admitted is not None and not admitted.may_use(group.name):
            continue
        names.append(group.name)
        names.extend(v.spec.pinned for v in group.variants.values())
    return names

"""What an application may say of an answer: the body of `POST /v1/feedback`, checked."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from router.proxy.errors import ApiError, bad_field
from router.proxy.json_body import Body, json_type

_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_FIELDS = ("request_id", "thumbs", "score", "metric", "comment")
_SAYS = ("thumbs", "score", "metric")


class Statement(NamedTuple):
    """One statement."""

    request_id: str
    kind: str
    """`thumbs`, `score`, `metric`."""
    source: str
    """The kind, and of a metric its name: `metric:NAME`."""
    value: float
    """In [0, 1]."""
    comment: str | None


def read_statement(body: Body, comment_chars: int) -> Statement:
    """Return the statement in a body. Raises ApiError 400 that names the field at fault."""
    for name in body:
        if name not in _FIELDS:
            raise bad_field(name[:64], f"unknown field; expected {', '.join(_FIELDS)}", "unknown_parameter")
    request_id = body.get("request_id")
    if request_id is None:
        raise bad_field("request_id", "field required", "missing_required_parameter")
    if not isinstance(request_id, str) or not _ID.fullmatch(request_id):
        raise bad_field("request_id", "expected the x-request-id of an answer", "invalid_value")
    said = [name for name in _SAYS if body.get(name) is not None]
    if len(said) != 1:
        found = " and ".join(said) or "none of them"
        raise bad_field(said[1] if said else "thumbs", f"expected one of thumbs, score, metric; found {found}")
    kind = said[0]
    source, value = _READ[kind](body[kind])
    comment = body.get("comment")
    if comment is not None and not isinstance(comment, str):
        raise bad_field("comment", f"expected a string, found {json_type(comment)}", "invalid_type")
    return Statement(request_id, kind, source, value, (comment or "")[:comment_chars] or None)


def _thumbs(said: Any) -> tuple[str, float]:
    if said not in ("up", "down"):
        raise bad_field("thumbs", f"expected up or down, found {str(said)[:64]!r}", "invalid_value")
    return "thumbs", float(said == "up")


def _score(said: Any) -> tuple[str, float]:
    return "score", _share("score", said)


def _metric(said: Any) -> tuple[str, float]:
    if not isinstance(said, dict):
        raise bad_field("metric", f"expected an object, found {json_type(said)}", "invalid_type")
    for name in said:
        if name not in ("name", "value"):
            raise bad_field(f"metric.{name[:64]}", "unknown field; expected name and value", "unknown_parameter")
    name, value = said.get("name"), said.get("value")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise bad_field("metric.name", "expected 1 to 64 letters, digits, dots, dashes or underscores", "invalid_value")
    if isinstance(value, bool):
        return f"metric:{name}", float(value)
    return f"metric:{name}", _share("metric.value", value)


def _share(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad_field(field, f"expected a number in [0, 1], found {json_type(value)}", "invalid_type")
    if not 0 <= value <= 1:
        raise bad_field(field, f"expected a number in [0, 1], found {str(value)[:32]}", "invalid_value")
    return float(value)


_READ = {"thumbs": _thumbs, "score": _score, "metric": _metric}


def unknown_request(request_id: str) -> ApiError:
    """Return the 404 for a request that is not known to this tenant."""
    words = f"No answer with the request id {request_id!r} was given to this API key, or it is no longer known."
    return ApiError(404, words, "request_id", "request_not_found")


def too_late(window_s: float) -> ApiError:
    """Return the 410 for feedback after its time."""
    return ApiError(410, f"Feedback is taken for {window_s:g} s after the answer.", "request_id", "feedback_too_late")

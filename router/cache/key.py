"""The key of a request: two requests share it exactly when nothing that can change the answer differs.

It is a hash of the whole body in a normal form (keys sorted, no whitespace), so a parameter that Bitgear has never
heard of counts too. Only what cannot change the answer's content is left out.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson

PREFIX = "bitgear:c1"
"""Begins the name of every entry; the number is the key's own version."""
LEASE_PREFIX = "bitgear:l1"
WANTED_PREFIX = "bitgear:w1"
VECTORS_PREFIX = "bitgear:v1"
"""Begins the name of a group's stream of vectors."""
IGNORED = frozenset({"stream", "stream_options", "user", "metadata", "model"})
"""Fields of the body that stay out: how the answer is sent and who asked; the model counts as group or pin."""
_SHOWN = frozenset({"user", "metadata"})
"""Fields that an answer of `/v1/responses` repeats."""
ANONYMOUS = "anonymous"
"""The tenant of requests without credentials."""

_DIGEST_BYTES = 18
_TENANT_BYTES = 9
_VERSION = b"bitgear request 1"
_SAME_AS_INTEGERS = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
# The fast parser makes floats of integers beyond 64 bits: two different ones might read the same.
_LONG_NUMBER = b"0" * 20
_DIGITS = bytes(0x30 if chr(b).isascii() and chr(b).isdigit() else 0x20 for b in range(256))


class Place(NamedTuple):
    """What a request's answer depends on beside its body."""

    group: str
    pin: str | None
    tenant: str
    revision: str
    """Identity of the weights behind the group (or behind the pinned variant)."""


class Key(NamedTuple):
    """Names in Redis; the braces keep an entry and its lease in one slot of a cluster."""

    digest: str
    entry: str
    lease: str
    wanted: str = ""
    """Mark of those who wait in other workers."""


def request_key(path: bytes, raw: bytes, body: Mapping[str, Any], place: Place) -> Key | None:
    """Return the key; None for a body whose numbers are too long to be read exactly. `path` has the query string with it."""
    normal = _normal(raw, body, IGNORED - _SHOWN if path.startswith(b"/v1/responses") else IGNORED)
    if normal is None:
        return None
    state = blake2b(digest_size=_DIGEST_BYTES)
    for part in (_VERSION, path, place.group.encode(), _pin(place), place.tenant.encode(), place.revision.encode()):
        # Lengths stand before the parts: no two lists of parts make the same bytes.
        state.update(len(part).to_bytes(8, "big") + part)
    state.update(normal)
    digest = urlsafe_b64encode(state.digest()).decode()
    return Key(
        digest,
        f"{prefix_of(place.group, place.tenant)}{{{digest}}}",
        f"{LEASE_PREFIX}:{{{digest}}}",
        f"{WANTED_PREFIX}:{{{digest}}}",
    )


def has_long_number(raw: bytes) -> bool:
    """Return whether the bytes may hold an integer that the fast parser does not read exactly."""
    # A table and a search for a constant: a pattern would take milliseconds for a request with an image.
    return _LONG_NUMBER in raw.translate(_DIGITS)


def _pin(place: Place) -> bytes:
    return b"" if place.pin is None else b"@" + place.pin.encode()


def prefix_of(group: str, tenant: str) -> str:
    """Return what the names of all entries of one group and tenant begin with."""
    return f"{PREFIX}:{quote(group, safe='')}:{tenant}:"


def _normal(raw: bytes, body: Mapping[str, Any], ignored: frozenset[str]) -> bytes | None:
    if has_long_number(raw):
        return _exact(raw, ignored)
    kept = {name: value for name, value in body.items() if name not in ignored}
    for name in _SAME_AS_INTEGERS:
        value = kept.get(name)
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            kept[name] = int(value)
    return orjson.dumps(kept, option=orjson.OPT_SORT_KEYS)


def _exact(raw: bytes, ignored: frozenset[str]) -> bytes | None:
    # Python's parser keeps long integers as they are.
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    kept = {name: value for name, value in body.items() if name not in ignored}
    return b"exact" + json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()


def tenant_of(headers: Iterable[tuple[bytes, bytes]], name: bytes, secret: bytes = b"") -> str:
    """Return the tenant: a hash of the header `name` (or of `x-api-key`), never the credential itself.

    With a secret the hash cannot be tried out against guessed credentials by who can only read Redis.
    """
    found: bytes | None = None
    spare: bytes | None = None
    for header, value in headers:
        if header == name:
            found = value
        elif header == b"x-api-key":
            spare = value
    credential = found or spare
    return tenant_of_credential(credential, secret) if credential else ANONYMOUS


def tenant_of_credential(value: bytes, secret: bytes = b"") -> str:
    """Return the tenant that a header's value stands for: the same one for `Bearer K`, in any spelling, and `K`."""
    value = value.strip()
    if value[:7].lower() == b"bearer ":
        value = value[7:].lstrip()
    digest = blake2b(value, digest_size=_TENANT_BYTES, key=secret[:64], person=b"bitgear tenant").digest()
    return urlsafe_b64encode(digest).decode()

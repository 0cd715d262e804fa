"""The key with which entries are encrypted at rest, from an environment variable."""

from __future__ import annotations

import binascii
import hashlib
from base64 import b64decode
from collections.abc import Mapping
from typing import NamedTuple

from router.cache.entry import Cipher

_BYTES = 32


class CacheSetupError(Exception):
    """The cache cannot be set up as configured; the message says what is missing."""


class Secret(NamedTuple):
    """What is derived from the configured key."""

    cipher: Cipher
    tenants: bytes
    """Key of the hash that names tenants."""


def read_secret(name: str | None, env: Mapping[str, str]) -> Secret | None:
    """Return the secret in the environment variable `name`; None where none is configured.

    Raises CacheSetupError when the variable is empty or no key of 32 bytes, or the library is missing: entries that
    should be encrypted are never written as they are.
    """
    if name is None:
        return None
    key = _key(env.get(name, "").strip())
    if key is None:
        raise CacheSetupError(
            f"cache.encryption_key_env: the variable {name} must hold 32 bytes, as 64 hexadecimal digits or in base64"
        )
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise CacheSetupError(
            "cache.encryption_key_env: encryption needs the extra `encryption`: pip install 'bitgear[encryption]'"
        ) from None
    return Secret(AESGCM(key), hashlib.blake2b(key, digest_size=32, person=b"bitgear tenants").digest())


def _key(text: str) -> bytes | None:
    if len(text) == 2 * _BYTES:
        try:
            return bytes.fromhex(text)
        except ValueError:
            return None
    try:
        key = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if len(key) == _BYTES else None

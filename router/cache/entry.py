"""An entry's bytes: a header that is never encrypted, then the answer, compressed above a size, encrypted with a key.

    "BG" | version 1 byte | flags 1 byte | made at, ms since 1970, 8 bytes | CRC-32 of the rest, 4 bytes | rest

The rest is, after decryption and decompression, the length of a JSON object (2 bytes), that object, and the answer as
a plain body. What is of another version, broken, or encrypted otherwise is no entry: the request goes upstream.
"""

from __future__ import annotations

import secrets
import struct
import zlib
from typing import NamedTuple, Protocol

import orjson

MAGIC = b"BG"
VERSION = 1
HEAD = struct.Struct(">2sBBQI")
_COMPRESSED = 1
_ENCRYPTED = 2
_NONCE = 12
_LEVEL = 1


class Entry(NamedTuple):
    """One answer, as a replica gave it."""

    kind: str
    """Endpoint's name."""
    variant: str
    served: str
    """Name of the model in the body."""
    prompt_tokens: int
    completion_tokens: int
    made_ms: int
    """Milliseconds since 1970."""
    body: bytes
    """The whole answer as a plain one."""

    def age_s(self, now_ms: int) -> int:
        """Return whole seconds since it was made; never negative, whatever the clocks of two machines say."""
        return max(0, now_ms - self.made_ms) // 1000


class Cipher(Protocol):
    """Authenticated encryption; `decrypt` raises when anything was changed."""

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes:
        """Return the encrypted bytes."""
        ...

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes:
        """Return the plain bytes."""
        ...


class UnreadableEntry(Exception):  # noqa: N818 - a stranger's bytes, not an error
    """Bytes that are no entry of this version."""


class Format:
    """Writes and reads entries. `max_bytes` bounds an answer's size, before compression, both ways."""

    def __init__(self, *, compress_above: int, max_bytes: int, cipher: Cipher | None = None) -> None:
        self._compress_above = compress_above
        self._max_bytes = max_bytes
        self._cipher = cipher

    def encode(self, entry: Entry, name: str) -> bytes | None:
        """Return the bytes to keep under `name`; None for an answer that is too large."""
        if len(entry.body) > self._max_bytes:
            return None
        told = orjson.dumps([entry.kind, entry.variant, entry.served, entry.prompt_tokens, entry.completion_tokens])
        rest = len(told).to_bytes(2, "big") + told + entry.body
        flags = 0
        if len(rest) > self._compress_above:
            packed = zlib.compress(rest, _LEVEL)
            if len(packed) < len(rest):
                rest, flags = packed, _COMPRESSED
        if self._cipher is not None:
            flags |= _ENCRYPTED
            nonce = secrets.token_bytes(_NONCE)
            rest = nonce + self._cipher.encrypt(nonce, rest, self._bound(name, flags, entry.made_ms))
        return HEAD.pack(MAGIC, VERSION, flags, entry.made_ms, zlib.crc32(rest)) + rest

    def decode(self, data: bytes, name: str) -> Entry:
        """Return the entry kept under `name`. Raises UnreadableEntry, saying why."""
        if len(data) < HEAD.size or data[:2] != MAGIC:
            raise UnreadableEntry("not an entry")
        _, version, flags, made_ms, crc = HEAD.unpack_from(data)
        if version != VERSION or flags & ~(_COMPRESSED | _ENCRYPTED):
            raise UnreadableEntry(f"an entry of version {version}")
        rest = data[HEAD.size :]
        if zlib.crc32(rest) != crc:
            raise UnreadableEntry("broken")
        if bool(flags & _ENCRYPTED) != (self._cipher is not None):
            raise UnreadableEntry("encrypted" if self._cipher is None else "not encrypted")
        if self._cipher is not None:
            rest = self._decrypted(rest, self._bound(name, flags, made_ms))
        if flags & _COMPRESSED:
            rest = self._unpacked(rest)
        return _parsed(rest, made_ms)

    @staticmethod
    def _bound(name: str, flags: int, made_ms: int) -> bytes:
        # Encrypted bytes count only under the name, and with the header, they were made with.
        return HEAD.pack(MAGIC, VERSION, flags, made_ms, 0) + name.encode()

    def _decrypted(self, rest: bytes, bound: bytes) -> bytes:
        assert self._cipher is not None
        try:
            return self._cipher.decrypt(rest[:_NONCE], rest[_NONCE:], bound)
        except Exception:
            # The library's own error says no more than this.
            raise UnreadableEntry("encrypted with another key, or changed") from None

    def _unpacked(self, rest: bytes) -> bytes:
        unpacker = zlib.decompressobj()
        try:
            # A bound, so that no few bytes become a gigabyte.
            out = unpacker.decompress(rest, self._max_bytes + 65_538)
        except zlib.error:
            raise UnreadableEntry("broken") from None
        if not unpacker.eof:
            raise UnreadableEntry("too large, or cut")
        return out


def _parsed(rest: bytes, made_ms: int) -> Entry:
    length = int.from_bytes(rest[:2], "big")
    try:
        kind, variant, served, prompt, completion = orjson.loads(rest[2 : 2 + length])
    except (orjson.JSONDecodeError, ValueError, TypeError):
        raise UnreadableEntry("broken") from None
    if not (isinstance(kind, str) and isinstance(variant, str) and isinstance(served, str)):
        raise UnreadableEntry("broken")
    if not (isinstance(prompt, int) and isinstance(completion, int)):
        raise UnreadableEntry("broken")
    return Entry(kind, variant, served, prompt, completion, made_ms, rest[2 + length :])

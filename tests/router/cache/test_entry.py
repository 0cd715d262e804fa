"""Entries survive as they were; whatever else lies under a key is refused."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.cache.entry import HEAD, Entry, Format, UnreadableEntry
from router.cache.secret import CacheSetupError, read_secret

FORM = Format(compress_above=100, max_bytes=10_000)
ENTRIES = st.builds(
    Entry,
    st.sampled_from(["chat.completions", "completions", "embeddings"]),
    st.text(max_size=10),
    st.text(max_size=10),
    st.integers(0, 2**40),
    st.integers(0, 2**40),
    st.integers(0, 2**60),
    st.binary(max_size=300) | st.builds(lambda b: b * 50, st.binary(max_size=100)),
)


def cipher(key: str = "ab" * 32) -> Format:
    pytest.importorskip("cryptography", reason="the extra `encryption`")
    secret = read_secret("K", {"K": key})
    assert secret is not None
    return Format(compress_above=100, max_bytes=10_000, cipher=secret.cipher)


@given(ENTRIES)
def test_what_goes_in_comes_out(entry: Entry) -> None:
    for form in (FORM, cipher()):
        data = form.encode(entry, "k")
        assert data is not None
        assert form.decode(data, "k") == entry


@given(ENTRIES, st.data())
def test_any_broken_byte_is_refused_or_changes_only_the_time(entry: Entry, data: st.DataObject) -> None:
    whole = FORM.encode(entry, "k")
    assert whole is not None
    at = data.draw(st.integers(0, len(whole) - 1))
    broken = bytearray(whole)
    broken[at] ^= data.draw(st.integers(1, 255))
    try:
        found = FORM.decode(bytes(broken), "k")
    except UnreadableEntry:
        return
    assert found._replace(made_ms=entry.made_ms) == entry


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_in_good_order(data: bytes) -> None:
    for form in (FORM, cipher()):
        with pytest.raises(UnreadableEntry):
            form.decode(data, "k")
        with pytest.raises(UnreadableEntry):
            form.decode(HEAD.pack(b"BG", 1, 3, 0, 0) + data, "k")


ENTRY = Entry("chat.completions", "fp16", "m", 1, 2, 1000, b"x" * 500)


def test_large_ones_are_compressed_and_small_ones_not() -> None:
    large, small = FORM.encode(ENTRY, "k"), FORM.encode(ENTRY._replace(body=b"abc"), "k")
    assert large is not None
    assert small is not None
    assert len(large) < 150
    assert small.endswith(b"abc")
    noise = FORM.encode(ENTRY._replace(body=os.urandom(500)), "k")
    assert noise is not None
    assert len(noise) < 600


def test_too_large_is_not_kept() -> None:
    assert FORM.encode(ENTRY._replace(body=b"x" * 10_001), "k") is None


def test_few_bytes_do_not_become_many() -> None:
    bomb = Format(compress_above=1, max_bytes=10**8).encode(ENTRY._replace(body=bytes(10**7)), "k")
    assert bomb is not None
    assert len(bomb) < 100_000
    with pytest.raises(UnreadableEntry, match="too large"):
        FORM.decode(bomb, "k")


def test_another_version_is_refused() -> None:
    data = FORM.encode(ENTRY, "k")
    assert data is not None
    with pytest.raises(UnreadableEntry, match="version 2"):
        FORM.decode(data[:2] + b"\x02" + data[3:], "k")


def test_encrypted_entries_are_bound_to_key_name_and_head() -> None:
    form = cipher()
    data = form.encode(ENTRY, "k")
    assert data is not None
    assert b"xxxx" not in data
    for other, name in ((form, "another name"), (cipher("cd" * 32), "k"), (FORM, "k")):
        with pytest.raises(UnreadableEntry):
            other.decode(data, name)
    older = HEAD.pack(*HEAD.unpack_from(data)[:3], 0, HEAD.unpack_from(data)[4]) + data[HEAD.size :]
    with pytest.raises(UnreadableEntry):
        form.decode(older, "k")
    plain = FORM.encode(ENTRY, "k")
    assert plain is not None
    with pytest.raises(UnreadableEntry, match="not encrypted"):
        form.decode(plain, "k")


def test_age_is_never_negative() -> None:
    assert ENTRY.age_s(900) == 0
    assert ENTRY.age_s(3999) == 2


@pytest.mark.parametrize("value", ["", "short", "zz" * 32, "ab" * 31, "YWJj"])
def test_a_bad_secret_is_said(value: str) -> None:
    with pytest.raises(CacheSetupError, match="K must hold 32 bytes"):
        read_secret("K", {"K": value})


def test_secrets() -> None:
    pytest.importorskip("cryptography", reason="the extra `encryption`")
    assert read_secret(None, {}) is None
    assert read_secret("K", {"K": "q" * 42 + "o="}) is not None

"""Redis URLs as redis-py reads them."""

from __future__ import annotations

import ssl

import pytest

from router.cache.address import Address, parse_address


@pytest.mark.parametrize(
    ("url", "address", "greeting"),
    [
        ("redis://", Address(), []),
        ("redis://h:7/2", Address("h", 7, db=2), [("SELECT", 2)]),
        ("redis://u:p%40@h", Address("h", username="u", password="p@"), [("AUTH", "u", "p@")]),
        ("redis://:p@[::1]:7?db=3", Address("::1", 7, password="p", db=3), [("AUTH", "p"), ("SELECT", 3)]),
        ("unix:///a%20b.sock?db=1", Address(path="/a b.sock", db=1), [("SELECT", 1)]),
        ("unix://u:p@/s", Address(path="/s", username="u", password="p"), [("AUTH", "u", "p")]),
    ],
)
def test_urls(url: str, address: Address, greeting: list[tuple[object, ...]]) -> None:
    assert parse_address(url) == address
    assert parse_address(url).greeting() == greeting


def test_a_password_of_the_environment_goes_first() -> None:
    assert parse_address("redis://u:old@h", "new").greeting() == [("AUTH", "u", "new")]


def test_tls() -> None:
    strict = parse_address("rediss://h").tls
    loose = parse_address("rediss://h?ssl_cert_reqs=none").tls
    assert strict is not None
    assert strict.verify_mode == ssl.CERT_REQUIRED
    assert strict.check_hostname
    assert loose is not None
    assert loose.verify_mode == ssl.CERT_NONE


@pytest.mark.parametrize("url", ["http://h", "redis://h/x", "redis://h:port"])
def test_no_address(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_address(url)

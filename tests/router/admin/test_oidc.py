"""People of an OpenID Connect provider: whose signed tokens are good, for what, and what is never taken."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from router.admin.holder import Holder
from router.admin.oidc import Oidc, fetch_json
from router.config.admin import OidcConfig
from tests.conftest import TOKEN, Bitgear
from tests.support.client import fetch
from tests.support.upstream import ScriptedUpstream
from tests.support.wire import json_response

ISSUER = "https://id.example"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
CONFIG = OidcConfig(issuer=ISSUER, audience="bitgear", write_roles=("ops",), read_roles=("dev",))


def jwk(key: Any, name: str, algorithm: str = "RS256") -> dict[str, Any]:
    made = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key())
    return {**json.loads(made), "kid": name, "use": "sig", "alg": algorithm}


def token(key: Any = RSA, kid: str | None = "a", algorithm: str = "RS256", **claims: Any) -> bytes:
    now = time.time()
    said = {"iss": ISSUER, "aud": "bitgear", "exp": now + 300, "sub": "u1", "email": "ann@example", "groups": ["ops"]}
    said.update(claims)
    said = {name: value for name, value in said.items() if value is not None}
    return jwt.encode(said, key, algorithm, headers={"kid": kid} if kid else None).encode()


class Provider:
    """Discovery and keys, and how often somebody looked."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.keys = list(keys)
        self.away = False
        self.looks = 0

    async def __call__(self, url: str) -> Any:
        if self.away:
            raise OSError("away")
        if url.endswith("/.well-known/openid-configuration"):
            return {"jwks_uri": "https://id.example/keys"}
        assert url == "https://id.example/keys"
        self.looks += 1
        return {"keys": self.keys}


def oidc(provider: Provider, config: OidcConfig = CONFIG, clock: Callable[[], float] = lambda: 1000.0) -> Oidc:
    return Oidc(config, provider, logging.getLogger("test"), clock)


@pytest.fixture
def provider() -> Provider:
    return Provider(jwk(RSA, "a"), jwk(CURVE, "c", "ES256"))


async def test_roles_say_what_somebody_may_do(provider: Provider) -> None:
    found = oidc(provider)
    assert await found.holder(token()) == Holder("ann@example", True)
    assert await found.holder(token(groups=["dev", "x"])) == Holder("ann@example", False)
    assert await found.holder(token(groups="dev", email=None)) == Holder("u1", False)
    assert await found.holder(token(groups=["x"])) is None
    assert await found.holder(token(groups=None)) is None
    assert await found.holder(token(CURVE, "c", "ES256")) == Holder("ann@example", True)
    everybody = CONFIG.model_copy(update={"read_roles": ()})
    assert await oidc(provider, everybody).holder(token(groups=None)) == Holder("ann@example", False)
    assert provider.looks == 2


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"},
        {"iss": None},
        {"aud": "another"},
        {"aud": None},
        {"exp": 1000},
        {"exp": None},
        {"exp": "soon"},
        {"nbf": time.time() + 3600},
        {"email": None, "sub": None},
        {"email": 7, "sub": 7},
        {"email": "operator\n\x1b[2J"},
        {"groups": 7},
        {"groups": True},
        {"groups": {"ops": 1}},
        {"groups": [["ops"], 7, None]},
    ],
)
async def test_what_a_token_says_must_be_for_bitgear_and_now(provider: Provider, claims: dict[str, Any]) -> None:
    assert await oidc(provider).holder(token(**claims)) is None


async def test_only_the_providers_own_signature_counts(provider: Provider) -> None:
    found = oidc(provider)
    good = token()
    head, body, signature = good.split(b".")
    assert await found.holder(token(OTHER)) is None
    assert await found.holder(b".".join((head, body, b""))) is None
    assert await found.holder(b".".join((head, body, signature[:-4] + b"AAAA"))) is None
    none = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT","kid":"a"}').rstrip(b"=")
    assert await found.holder(b".".join((none, body, b""))) is None
    # The public key as a shared secret: everybody has it.
    pem = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    symmetric = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT","kid":"a"}').rstrip(b"=")
    forged = base64.urlsafe_b64encode(hmac.digest(pem, symmetric + b"." + body, "sha256")).rstrip(b"=")
    assert await found.holder(b".".join((symmetric, body, forged))) is None
    assert await found.holder(good) is not None


async def test_a_shared_secret_among_the_keys_is_none(provider: Provider) -> None:
    secret = b"0" * 64
    provider.keys.append({"kty": "oct", "kid": "s", "k": base64.urlsafe_b64encode(secret).decode()})
    assert await oidc(provider).holder(token(secret, "s", "HS256")) is None


async def test_new_keys_are_looked_up_but_not_with_every_token(provider: Provider) -> None:
    now = [1000.0]
    found = oidc(provider, clock=lambda: now[0])
    assert await found.holder(token()) is not None
    provider.keys = [jwk(OTHER, "b")]
    for _ in range(20):
        assert await found.holder(token(OTHER, "b")) is None
    assert provider.looks == 1
    now[0] += 31.0
    assert await found.holder(token(OTHER, "b")) is not None
    assert await found.holder(token()) is None
    assert provider.looks == 2


async def test_a_provider_that_is_away_locks_nobody_out_whose_key_is_known(provider: Provider) -> None:
    now = [1000.0]
    found = oidc(provider, clock=lambda: now[0])
    assert await found.holder(token()) is not None
    provider.away, now[0] = True, 9000.0
    assert await found.holder(token()) is not None
    fresh = oidc(provider)
    assert await fresh.holder(token()) is None


async def test_whose_key_is_known_waits_for_no_look_that_another_one_waits_for(provider: Provider) -> None:
    now, slow, asked = [1000.0], asyncio.Event(), asyncio.Event()

    async def fetch_slowly(url: str) -> Any:
        if now[0] > 1000.0:
            asked.set()
            await slow.wait()
        return await provider(url)

    found = Oidc(CONFIG, fetch_slowly, logging.getLogger("test"), lambda: now[0])
    assert await found.holder(token()) is not None
    now[0] = 9000.0
    looking = asyncio.create_task(found.holder(token(OTHER, "b")))
    await asked.wait()
    async with asyncio.timeout(60):
        assert await found.holder(token()) == Holder("ann@example", True)
    slow.set()
    assert await looking is None
    assert provider.looks == 2


@pytest.mark.parametrize("odd", [{"alg": ["a"]}, {"n": 5}, {"n": "!"}, {"kty": []}, {"use": ["sig"]}, {"alg": "none"}])
async def test_one_odd_key_spoils_no_other(odd: dict[str, Any]) -> None:
    provider = Provider({**jwk(OTHER, "odd"), **odd}, jwk(RSA, "a"))
    assert await oidc(provider).holder(token()) is not None


@pytest.mark.parametrize("where", ["http://id.example/keys", "file:///etc/keys"])
async def test_keys_of_a_safe_provider_are_not_taken_from_an_unsafe_place(where: str) -> None:
    async def unsafe(url: str) -> Any:
        return {"jwks_uri": where} if "well-known" in url else {"keys": [jwk(RSA, "a")]}

    assert await Oidc(CONFIG, unsafe, logging.getLogger("test")).holder(token()) is None


async def test_a_deep_header_is_refused(provider: Provider) -> None:
    for deep in (b"[" * 11_000, b'{"alg":"RS256","kid":"a","x":' + b'{"a":' * 2000 + b"1" + b"}" * 2001):
        head = base64.urlsafe_b64encode(deep).rstrip(b"=")
        assert await oidc(provider).holder(head + b".e30.AA") is None


async def test_a_provider_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.admin.oidc._LONGEST_LOOK_S", 0.3)

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with server:
        with pytest.raises(OSError, match="TimeoutError"):
            async with asyncio.timeout(60):
                await fetch_json(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys")


async def test_a_token_without_a_keys_name_needs_a_single_key(provider: Provider) -> None:
    assert await oidc(provider).holder(token(kid=None)) is None
    assert await oidc(Provider(jwk(RSA, "a"))).holder(token(kid=None)) is not None


@pytest.mark.parametrize("keys", [None, [], {}, {"keys": 7}, {"keys": [7]}, {"keys": [{"kty": "RSA"}]}, "text"])
async def test_odd_answers_of_a_provider_are_no_keys(keys: Any) -> None:
    async def odd(url: str) -> Any:
        return {"jwks_uri": "https://id.example/x"} if "well-known" in url else keys

    assert await Oidc(CONFIG, odd, logging.getLogger("test")).holder(token()) is None


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300) | st.tuples(st.binary(), st.binary(), st.binary()).map(b".".join))
async def test_no_bytes_do_harm(data: bytes) -> None:
    assert await oidc(Provider(jwk(RSA, "a"))).holder(data) is None


async def test_a_person_uses_the_admin_api_and_is_named_in_the_audit_log(
    bitgear: Callable[..., Awaitable[Bitgear]], redis_url: str
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        found = {"jwks_uri": f"{issuer}/keys"} if b"well-known" in head else {"keys": [jwk(RSA, "a")]}
        writer.write(json_response(json.dumps(found).encode()))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    issuer = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with ScriptedUpstream("g") as up, server:
        said = {"issuer": issuer, "audience": "bitgear", "write_roles": ["ops"], "read_roles": ["dev"]}
        config = {"admin": {"oidc": said}, "redis": {"timeout_s": 5.0}}
        gear = await bitgear({"fp16": up.url}, config=config, redis_url=redis_url)
        bare = gear.admin_url.replace(f"tester:{TOKEN}@", "")

        async def call(method: str, path: str, body: Any = None, **claims: Any) -> Any:
            signed = token(iss=issuer, **claims).decode()
            headers = [("authorization", f"Bearer {signed}"), ("if-match", "*")]
            return await fetch(bare, path, body, headers=headers, method=method)

        change = {"scenarios": {"realtime": {"ttft_ms": 777}}}
        assert (await call("PATCH", "/admin/config", change, groups=["dev"])).status == 403
        assert (await call("PATCH", "/admin/config", change, groups=["x"])).status == 401
        assert (await call("PATCH", "/admin/config", change)).status == 200
        log = (await call("GET", "/admin/audit", groups=["dev"])).json()
        assert log[0]["by"] == "ann@example"
        # A name that a token has is that token's.
        again = {"scenarios": {"realtime": {"ttft_ms": 778}}}
        assert (await call("PATCH", "/admin/config", again, email="tester")).status == 200
        log = (await call("GET", "/admin/audit", groups=["dev"])).json()
        assert log[0]["by"] == "tester (OpenID)"
        # Nor is anybody Bitgear's own tuning, whose changes nobody ordered.
        assert (await call("PATCH", "/admin/config", change, email="tuning")).status == 200
        log = (await call("GET", "/admin/audit", groups=["dev"])).json()
        assert log[0]["by"] == "tuning (OpenID)"
        # Own tokens go on being good.
        assert (await fetch(gear.admin_url, "/admin/config")).status == 200

"""The admin port refuses without a token, whatever is asked."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path

import pytest

from router.admin.auth import OWN_TOKEN, TokenSetupError, presented, read_tokens
from router.config.admin import AdminConfig
from tests.conftest import TOKEN, Bitgear
from tests.support.client import fetch
from tests.support.upstream import ScriptedUpstream

Start = Callable[..., Awaitable[Bitgear]]
DIGEST = sha256(b"reading").hexdigest()
READER = {"admin": {"tokens": {"reader": {"sha256": DIGEST, "role": "read"}}}}


def bare(gear: Bitgear) -> str:
    """The address without its token."""
    return gear.admin_url.replace(f"tester:{TOKEN}@", "")


async def test_nothing_is_answered_without_a_token(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url})
    described = (await fetch(bare(gear), "/openapi.json")).json()
    asked = 0
    for path, methods in described["paths"].items():
        for method in methods:
            status = (await fetch(bare(gear), path.replace("{", "").replace("}", ""), method=method.upper())).status
            wanted = path in ("/healthz", "/readyz", "/metrics")
            assert (status == 200) if wanted else (status == 401), (method, path)
            asked += 1
    assert asked > 25
    for path in ("/admin", "/admin/", "//admin/config", "/ADMIN/config", "/admin/%63onfig", "/nothing", "/docs/"):
        assert (await fetch(bare(gear), path)).status == 401, path
    for value in ("Bearer nonsense", "Bearer", "Bearer ", "Basic !!!", "Basic bm9uc2Vuc2U=", "Digest x", ""):
        answer = await fetch(bare(gear), "/admin/config", headers=[("authorization", value)])
        assert answer.status == 401
        assert "www-authenticate" in dict(answer.head.headers)


async def test_a_reader_may_not_write(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url}, config=READER)
    token = [("authorization", "Bearer reading")]
    assert (await fetch(bare(gear), "/admin/config", headers=token)).status == 200
    for method, path in (("PATCH", "/admin/config"), ("POST", "/admin/cache/purge"), ("DELETE", "/admin/keys/x")):
        assert (await fetch(bare(gear), path, {}, headers=token, method=method)).status == 403


async def test_metrics_can_be_closed(bitgear: Start, up: ScriptedUpstream) -> None:
    gear = await bitgear({"fp16": up.url}, config={"admin": {"open_metrics": False}})
    assert (await fetch(bare(gear), "/metrics")).status == 401
    assert (await fetch(gear.admin_url, "/metrics")).status == 200
    assert (await fetch(bare(gear), "/healthz")).status == 200


def test_tokens_come_from_the_environment_a_digest_or_bitgears_own_file(tmp_path: Path) -> None:
    config = AdminConfig.model_validate(
        {"tokens": {"ann": {"token_env": "ANN", "role": "write"}, "bob": {"sha256": DIGEST}}}
    )
    file = tmp_path / "token"
    file.write_text("own\n")
    tokens = read_tokens(config, {"ANN": "s3cret"}, file)
    assert tokens.holder(b"s3cret") == ("ann", True)
    assert tokens.holder(b"reading") == ("bob", False)
    assert tokens.holder(b"own") == (OWN_TOKEN, True)
    assert tokens.holder(b"") is None
    with pytest.raises(TokenSetupError, match=r"admin\.tokens\.ann\.token_env: ANN is not set"):
        read_tokens(config, {}, None)
    with pytest.raises(TokenSetupError):
        read_tokens(AdminConfig(), {}, tmp_path / "missing")
    with pytest.raises(ValueError, match="one of the two"):
        AdminConfig.model_validate({"tokens": {"ann": {}}})


def test_a_browser_gives_it_as_a_password() -> None:
    assert presented([(b"authorization", b"Basic YW5uOnMzY3JldDp4")]) == b"s3cret:x"
    assert presented([(b"authorization", b"bearer  t ")]) == b"t"
    assert presented([(b"x", b"y")]) is None


async def test_no_other_sites_page_changes_anything_through_a_browser_that_knows_the_token(
    bitgear: Start, up: ScriptedUpstream
) -> None:
    gear = await bitgear({"fp16": up.url})
    address = gear.admin_url.partition("@")[2]
    cases: list[tuple[list[tuple[str, str]], bool]] = [
        ([("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")], False),
        ([("sec-fetch-site", "same-site"), ("origin", f"http://other.{address}")], False),
        ([("origin", "https://evil.example")], False),
        ([("origin", "null")], False),
        ([("sec-fetch-site", "same-origin"), ("origin", f"http://{address}")], True),
        ([("origin", f"http://{address}")], True),
        # Typed by a person, or no browser at all.
        ([("sec-fetch-site", "none")], True),
        ([], True),
    ]
    for headers, allowed in cases:
        for scheme, token in (("Basic", b64encode(f"x:{TOKEN}".encode()).decode()), ("Bearer", TOKEN)):
            sent = [*headers, ("authorization", f"{scheme} {token}")]
            answer = await fetch(bare(gear), "/admin/cache/purge", {}, sent)
            # A page that has the token to send it needs no browser that knows it.
            assert answer.status == (400 if allowed or scheme == "Bearer" else 403), (headers, scheme)
            assert (await fetch(bare(gear), "/admin/config", headers=sent)).status == 200

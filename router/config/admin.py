"""Settings of the operator's address and of applications' keys."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from backends.settings import Settings
from router.keys.record import KeyRecord


class AdminTokenConfig(Settings):
    """One token of the admin API."""

    token_env: str | None = Field(None, description="Environment variable with the token.")
    sha256: str | None = Field(
        None, pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the token, hexadecimal, instead of `token_env`."
    )
    role: Literal["read", "write"] = Field("read", description="read: look only; write: change too.")

    @model_validator(mode="after")
    def _one(self) -> AdminTokenConfig:
        if (self.token_env is None) == (self.sha256 is None):
            raise ValueError("a token is given by token_env or by sha256, one of the two")
        return self


class OidcConfig(Settings):
    """People of an OpenID Connect provider may use the admin API with its signed tokens. Needs the extra `oidc`."""

    issuer: str = Field(pattern=r"^https?://", description="The provider's issuer URL, as its tokens say it in `iss`.")
    audience: str = Field(min_length=1, description="What tokens for Bitgear say in `aud`.")
    jwks_url: str | None = Field(
        None, pattern=r"^https?://", description="Where its keys are. None: found by discovery at the issuer."
    )
    name_claim: str = Field(
        "email", description="Claim by which the audit log knows people; `sub` where it is missing."
    )
    role_claim: str = Field("groups", description="Claim with a person's roles: a text, or a list of them.")
    write_roles: tuple[str, ...] = Field((), description="Roles that may change things.")
    read_roles: tuple[str, ...] = Field((), description="Roles that may look. None given: everybody with a good token.")


class AdminConfig(Settings):
    """The operator's address: health, metrics, and with a token everything that can be seen and changed."""

    host: str = Field("127.0.0.1", description="Address of the admin API.")
    port: int = Field(8401, ge=0, le=65535, description="Port of the admin API.")
    tokens: dict[str, AdminTokenConfig] = Field(
        default_factory=dict,
        description="Tokens by the name under which the audit log knows them. None given: Bitgear makes one at its "
        "start, in a file for this user alone.",
    )
    oidc: OidcConfig | None = Field(None, description="Whose people may come as well. None: tokens alone.")
    open_metrics: bool = Field(True, description="Answer /metrics without a token.")


__all__ = ["AdminConfig", "AdminTokenConfig", "KeyRecord", "OidcConfig"]

"""What `bitgear up` hands to its proxy workers: the whole configuration, and every variant as URLs.

It is one JSON file in a private folder (mode 0600). It holds names of environment variables, never their values.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import orjson
from pydantic import Field, ValidationError

from backends.settings import Precision, Settings
from router.config.schema import Config


class RuntimeFileError(ValueError):
    """A runtime file that cannot be read; the message names the file and the field."""


class RuntimeVariant(Settings):
    """One variant as the proxy sees it: addresses, and what is needed to talk to them."""

    group: str = Field(description="Name of the model group.")
    variant: str = Field(description="Name of the variant within its group.")
    precision: Precision = Field(description="Precision of its weights.")
    urls: tuple[str, ...] = Field(min_length=1, description="Base URLs of the replicas, without `/v1`.")
    served_model: str = Field(description="Name to put into `model` for these servers.")
    kind: str = Field("openai", description="Kind of backend: openai, vllm, simulator, litellm.")
    price: float = Field(1.0, gt=0, description="Price of one second, relative to the others.")
    gpus: float = Field(1.0, gt=0, description="GPUs that one replica holds.")
    gpu_hour: float | None = Field(None, ge=0, description="Price of one GPU-hour. None: `cost.gpu_hour`.")
    last_resort: bool = Field(False, description="Used only when no other variant can serve.")
    max_model_len: int | None = Field(None, ge=1, description="Context length, tokens. None: asked from /v1/models.")
    api_key_env: str | None = Field(None, description="Environment variable with the servers' API key.")
    revision: str = Field("", description="Identity of the weights, as far as it is known; part of the cache's keys.")
    simulated: bool = Field(False, description="Whether the answers come from the simulator.")

    @property
    def pinned(self) -> str:
        """The name by which a client pins this variant: `group@variant`."""
        return f"{self.group}@{self.variant}"

    def api_key(self, env: Mapping[str, str]) -> str | None:
        """The servers' API key from `env`; None where none is needed or set."""
        return (env.get(self.api_key_env) or None) if self.api_key_env else None


class Runtime(Settings):
    """A resolved configuration: nothing is left to be looked up or started."""

    config: Config = Field(default_factory=Config, description="Effective configuration, all defaults filled in.")
    variants: tuple[RuntimeVariant, ...] = Field((), description="Every variant of every group, in configured order.")
    redis_url: str | None = Field(
        None, description="redis://, rediss:// or unix:// URL of the shared state. None: proxies run without it."
    )

    admin_token_file: str | None = Field(
        None, description="File with the admin token that Bitgear made itself. None: only the configured tokens."
    )
    control_file: str | None = Field(
        None, description="File in which the last control document is kept, for starts without Redis. None: it is not."
    )

    def groups(self) -> dict[str, tuple[RuntimeVariant, ...]]:
        """Variants by group, in configured order."""
        found: dict[str, tuple[RuntimeVariant, ...]] = {}
        for variant in self.variants:
            found[variant.group] = (*found.get(variant.group, ()), variant)
        return found

    def to_json(self) -> bytes:
        """The file's bytes; `from_json` gives back an equal value."""
        return orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_INDENT_2)

    @classmethod
    def from_json(cls, data: bytes | str) -> Runtime:
        """Parse `to_json`'s bytes. Raises RuntimeFileError naming each bad field."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise RuntimeFileError(_sentence(error)) from None

    def write(self, path: Path) -> None:
        """Write the file for this user alone (0600), whole or not at all."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(self.to_json())
        temporary.replace(path)

    @classmethod
    def read(cls, path: Path) -> Runtime:
        """Read a file written by `write`. Raises RuntimeFileError naming the file."""
        try:
            return cls.from_json(path.read_bytes())
        except OSError as error:
            raise RuntimeFileError(f"{path}: {error.strerror}") from None
        except RuntimeFileError as error:
            raise RuntimeFileError(f"{path}: {error}") from None


def _sentence(error: ValidationError) -> str:
    parts = [f"{'.'.join(str(p) for p in e['loc']) or 'file'}: {e['msg']}" for e in error.errors(include_input=False)]
    return "; ".join(parts)


__all__ = ["Runtime", "RuntimeFileError", "RuntimeVariant"]

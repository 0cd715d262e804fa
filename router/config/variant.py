"""From one backend's settings to the variant that the proxy sees."""

from __future__ import annotations

import hashlib

from backends.settings import BackendSettings
from router.config.runtime import RuntimeVariant

LAUNCHED = ("vllm", "simulator", "litellm")
"""Kinds whose servers Bitgear starts itself."""


def given(group: str, backend: BackendSettings) -> RuntimeVariant:
    """The variant of running servers, which the settings name."""
    urls = tuple(base_url(u) for u in backend.urls)
    return described(group, backend, urls=urls, served_model=backend.model or group, checkpoint="")


def described(
    group: str, backend: BackendSettings, *, urls: tuple[str, ...], served_model: str, checkpoint: str
) -> RuntimeVariant:
    """The variant that answers at `urls`; `checkpoint` is empty where it is not known."""
    return RuntimeVariant(
        group=group,
        variant=backend.variant,
        precision=backend.precision,
        urls=urls,
        served_model=served_model,
        kind=backend.kind,
        price=backend.price,
        gpus=backend.gpus,
        gpu_hour=backend.gpu_hour,
        last_resort=backend.is_last_resort,
        max_model_len=backend.max_model_len,
        api_key_env=backend.api_key_env,
        simulated=backend.kind == "simulator",
        revision=_revision(backend, checkpoint),
    )


def _revision(backend: BackendSettings, checkpoint: str) -> str:
    """Identity of a variant's weights and of what else decides its answers, as far as the configuration tells."""
    told = [backend.revision or "", checkpoint]
    own = {"vllm": backend.vllm, "simulator": backend.simulator, "litellm": backend.litellm}.get(backend.kind)
    told.append(own.model_dump_json(exclude={"replicas", "start_timeout_s"}) if own is not None else "")
    return hashlib.blake2b("\0".join(told).encode(), digest_size=12).hexdigest()


def base_url(url: str) -> str:
    """A server's base URL without a closing slash or `/v1`, however it was written."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


__all__ = ["LAUNCHED", "base_url", "described", "given"]

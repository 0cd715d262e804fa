"""Settings of one variant: where its servers are, or how they are started.

Units are in the field names (`_s` seconds, `_gib` GiB); every field has a default and a sentence.
"""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

PRECISION_BITS: dict[str, float] = {
    "fp32": 32,
    "fp16": 16.25,
    "bf16": 16,
    "fp8": 8.5,
    "int8": 8,
    "mxfp4": 4.25,
    "nvfp4": 4.5,
    "int4": 4,
}
"""Order of precisions, highest first: the number only orders (a float format ranks above the integer format of its width)."""

Precision = Literal["fp32", "fp16", "bf16", "fp8", "int8", "mxfp4", "nvfp4", "int4"]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:-]*$", max_length=128)]


class Settings(BaseModel):
    """Frozen, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


class VllmSettings(Settings):
    """How one vLLM variant is started (`kind: vllm`)."""

    checkpoint: str | None = Field(
        None, description="Checkpoint of this precision: a folder or a name. None: made from the group's model."
    )
    on_the_fly: str | None = Field(
        None, description="vLLM's own quantization while loading (for example `fp8`), instead of a checkpoint."
    )
    devices: tuple[int, ...] = Field(
        (), description="GPU indices of this variant; empty: all variants share every GPU."
    )
    memory_share: float | None = Field(
        None, gt=0, le=1, description="Share of each GPU's memory; None: the plan divides what there is."
    )
    kv_cache_gib: int = Field(1, ge=1, description="KV cache on CPU, whole GiB.")
    cores: tuple[int, ...] = Field((), description="CPU cores to bind to; empty: no binding.")
    threads: int | None = Field(
        None, ge=1, description="OpenMP threads on CPU; None: cores divided among the variants."
    )
    max_model_len: int | None = Field(
        None, ge=16, description="Context length in tokens; None: the model's own, or what fits."
    )
    max_num_seqs: int = Field(16, ge=1, description="Most requests decoded together.")
    enforce_eager: bool | None = Field(
        None, description="Skip compilation. None: skipped on CPU, where it only delays the start."
    )
    replicas: int = Field(1, ge=1, le=64, description="Servers of this variant.")
    extra_args: tuple[str, ...] = Field((), description="More arguments for vLLM, as they are.")
    env: dict[str, str] = Field(default_factory=dict, description="More environment for vLLM.")
    start_timeout_s: float = Field(
        900, gt=0, description="How long a start may take before it counts as failed, seconds."
    )


class SimulatorSettings(Settings):
    """A simulated variant (`kind: simulator`): constants of a roofline, and faults on demand."""

    parameters_b: float = Field(8.0, gt=0, description="Model parameters, billions.")
    layers: int = Field(36, ge=1, description="Layers (for the KV cache's size).")
    kv_heads: int = Field(8, ge=1, description="KV heads.")
    head_dim: int = Field(128, ge=1, description="Dimension of a head.")
    bandwidth_gb_s: float = Field(3350.0, gt=0, description="Memory bandwidth, GB/s (H100 SXM: 3350).")
    query_heads: int = Field(32, ge=1, description="Query heads (for attention's arithmetic).")
    peak_tflops: float = Field(989.0, gt=0, description="The device's dense FP16 peak, TFLOP/s (H100 SXM: 989).")
    peak_factor: float | None = Field(
        None,
        gt=0,
        description="Peak of this precision's arithmetic relative to FP16. None: by the precision (INT8, FP8: 2).",
    )
    group_size: int = Field(128, ge=1, description="Weights that share one 16-bit scale at INT4.")
    block_size: int = Field(16, ge=1, description="Tokens in one block of the KV cache.")
    efficiency: float = Field(0.6, gt=0, le=1, description="Share of the roofline that is reached.")
    overhead_ms: float = Field(2.0, ge=0, description="Fixed cost of one engine step, milliseconds.")
    kv_cache_gib: float = Field(24.0, gt=0, description="KV cache, GiB.")
    max_model_len: int = Field(8192, ge=16, description="Context length, tokens.")
    max_num_seqs: int = Field(64, ge=1, description="Most requests decoded together.")
    max_num_batched_tokens: int = Field(8192, ge=16, description="Most tokens of one engine step (chunked prefill).")
    time_scale: float = Field(1.0, ge=0, description="1: real time; 0.1: ten times faster; 0: no waiting.")
    mean_output_tokens: int = Field(64, ge=1, description="Mean length of an answer that max_tokens does not cut.")
    seed: int = Field(0, description="Seed of the answers and of the faults.")
    error_rate: float = Field(0.0, ge=0, le=1, description="Share of requests answered with HTTP 500.")
    slowdown: float = Field(1.0, gt=0, description="Factor on every time.")
    replicas: int = Field(1, ge=1, le=64, description="Servers of this variant.")


class HostedSettings(Settings):
    """A hosted model reached through litellm (`kind: litellm`), as last resort."""

    target: str = Field("", description="litellm's name of the model, for example `openai/gpt-4o-mini`.")
    api_base: str | None = Field(None, description="Base URL where it isn't the provider's own.")
    api_key_env: str | None = Field(None, description="Environment variable that holds the provider's key.")
    timeout_s: float = Field(120, gt=0, description="Longest whole answer, seconds.")


def check_url(url: str) -> None:
    """Raise ValueError unless `url` can be a server's base URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"urls: {url!r} is not a URL: {error}") from None
    if "@" in parts.netloc:
        # Not quoted: what stands there may be a secret.
        raise ValueError("urls: a base URL holds no user or password; name the key's variable in api_key_env")
    if parts.query or parts.fragment:
        raise ValueError("urls: a base URL holds no query or fragment; name the key's variable in api_key_env")
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable() or " " in url:
        raise ValueError(f"urls: {url!r} is not an http:// or https:// URL")
    if port == 0:
        raise ValueError(f"urls: {url!r} has no port that can be reached")
    try:
        parts.hostname.encode("idna")
    except UnicodeError as error:
        raise ValueError(f"urls: {parts.hostname!r} is not a host's name: {error}") from None


class BackendSettings(Settings):
    """One variant of a group: the group's model at one precision."""

    precision: Precision = Field(
        description="Precision of this variant: fp32, fp16, bf16, fp8, int8, mxfp4, nvfp4, int4."
    )
    name: Name | None = Field(None, description="Name behind the `@` when a client pins it. None: the precision.")
    kind: Literal["openai", "vllm", "simulator", "litellm"] = Field(
        "openai", description="openai: running servers given by `urls`; the others are started by `bitgear up`."
    )
    urls: tuple[str, ...] = Field((), description="Base URLs of running replicas, without `/v1` (kind openai).")
    model: str | None = Field(None, description="Name under which the servers know the model. None: the group's name.")
    revision: str | None = Field(
        None,
        max_length=200,
        description="Names the weights behind `urls`: change it with them, and answers of the old ones are forgotten.",
    )
    api_key_env: str | None = Field(None, description="Environment variable with the servers' API key.")
    max_model_len: int | None = Field(None, ge=16, description="Context length, tokens. None: asked from /v1/models.")
    price: float = Field(1.0, gt=0, description="Price of one second of this variant, relative to the others.")
    gpus: float = Field(
        1.0, gt=0, description="GPUs that one replica holds, for its cost: 0.33 for a third of one, 4 for four."
    )
    gpu_hour: float | None = Field(
        None, ge=0, description="Price of one of its GPUs for one hour, in `cost.currency`. None: `cost.gpu_hour`."
    )
    last_resort: bool | None = Field(
        None, description="Used only when no other variant can serve. None: true for kind litellm, false otherwise."
    )
    vllm: VllmSettings = Field(default_factory=VllmSettings, description="For kind vllm.")
    simulator: SimulatorSettings = Field(default_factory=SimulatorSettings, description="For kind simulator.")
    litellm: HostedSettings = Field(default_factory=HostedSettings, description="For kind litellm.")

    @model_validator(mode="after")
    def _complete(self) -> BackendSettings:
        if self.kind == "openai" and not self.urls:
            raise ValueError("kind openai needs at least one base URL in urls")
        if self.kind == "litellm" and not self.litellm.target:
            raise ValueError("kind litellm needs litellm.target, the model's name for litellm")
        if self.kind != "openai" and self.urls:
            raise ValueError(f"urls belong to kind openai; kind {self.kind} is started by bitgear and has its own")
        for url in self.urls:
            check_url(url)
        return self

    @property
    def variant(self) -> str:
        """Name of the variant within its group."""
        return self.name or self.precision

    @property
    def is_last_resort(self) -> bool:
        """Whether it serves only when nothing else can."""
        return self.kind == "litellm" if self.last_resort is None else self.last_resort


__all__ = [
    "PRECISION_BITS",
    "BackendSettings",
    "HostedSettings",
    "Precision",
    "Settings",
    "SimulatorSettings",
    "VllmSettings",
]

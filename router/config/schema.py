"""The configuration's types: frozen, every field with a default, a unit and a sentence."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from backends.settings import BackendSettings, Precision, Settings
from router.config.admin import AdminConfig, KeyRecord
from router.config.loop import ExplorationConfig, FeedbackConfig, ShadowConfig, TuningConfig
from router.config.semantic import SemanticConfig
from router.config.telemetry import CostConfig, DriftConfig, LoggingConfig, TracingConfig

ScenarioName = Literal["realtime", "batch", "edge"]

Threshold = Annotated[float, Field(ge=0, le=1)]
"""Highest risk that a precision may take."""


class ServerConfig(Settings):
    """The address that applications use."""

    host: str = Field("127.0.0.1", description="Address of the OpenAI-compatible API.")
    port: int = Field(8400, ge=0, le=65535, description="Port of the OpenAI-compatible API.")
    workers: int = Field(1, ge=1, le=256, description="Proxy processes that share the port.")
    max_body_mib: float = Field(32, gt=0, description="Largest request body, MiB; above it the client gets 413.")
    max_concurrent: int = Field(
        4096, ge=1, description="Most requests in flight per worker; above it the client gets 503."
    )
    require_key: bool = Field(
        False,
        description="Refuse requests without a key even while no key is known: none was made yet, or Redis, which has "
        "them, is away at a start without a copy.",
    )
    head_s: float = Field(60, gt=0, description="How long a client may take for a request's line and headers, seconds.")
    send_s: float = Field(
        60, gt=0, description="How long a client may read nothing of an answer that waits for it, seconds."
    )
    keep_alive_s: int = Field(
        75,
        ge=1,
        description="How long a client's connection stays open without a request, seconds: longer than a load balancer "
        "before Bitgear keeps it.",
    )
    drain_s: float = Field(30, ge=0, description="How long running requests may finish after a stop, seconds.")


class RedisConfig(Settings):
    """State that proxies share. Without an address a private Valkey server is started."""

    url: str | None = Field(
        None,
        description="redis://, rediss:// or unix:// URL, or redis+sentinel://HOST:PORT,HOST:PORT/SERVICE. "
        "None: a private Valkey server of Bitgear's own.",
    )
    password_env: str | None = Field(None, description="Environment variable with the password; better than in `url`.")
    timeout_s: float = Field(0.5, gt=0, description="Longest wait for one answer, seconds.")

    @field_validator("url")
    @classmethod
    def _scheme(cls, url: str | None) -> str | None:
        schemes = ("redis://", "rediss://", "unix://", "redis+sentinel://", "rediss+sentinel://")
        if url is not None and not url.startswith(schemes):
            raise ValueError("url is not a redis://, rediss://, unix://, redis+sentinel:// or rediss+sentinel:// URL")
        _check_ports(url)
        return url


def _check_ports(url: str | None) -> None:
    hosts = (url or "").partition("://")[2].partition("/")[0].rpartition("@")[2]
    try:
        for host in hosts.split(","):
            _ = urlsplit(f"//{host}").port
    except ValueError:
        # Not what is wrong: it may quote a password.
        raise ValueError("url is not scheme://host:port with a port from 0 to 65535") from None


class TimeoutConfig(Settings):
    """Separate limits on one request, seconds."""

    body_s: float = Field(60.0, gt=0, description="Receiving a request's body from the client.")
    connect_s: float = Field(2.0, gt=0, description="Opening a connection to a replica.")
    first_token_s: float = Field(
        120.0,
        gt=0,
        description="From sending a streamed request to its first token; a plain answer has `total_s` alone.",
    )
    between_tokens_s: float = Field(60.0, gt=0, description="Between two pieces of a stream.")
    total_s: float = Field(900.0, gt=0, description="The whole request, retries included.")


class ScenarioConfig(Settings):
    """What a kind of traffic needs, and what gives way when nothing meets it all."""

    ttft_ms: float | None = Field(None, gt=0, description="Target for the first token, milliseconds. None: no target.")
    e2e_ms: float | None = Field(None, gt=0, description="Target for the whole answer, milliseconds. None: no target.")
    gives_way: Literal["speed", "quality"] = Field(
        "speed", description="When no variant meets both risk and latency: which of the two is given up."
    )
    prefer: Literal["cheapest", "lowest_precision"] = Field(
        "cheapest", description="Among variants that meet both: the cheapest as measured now, or the lowest precision."
    )
    overload: Literal["serve", "refuse"] = Field(
        "serve",
        description="A request that no variant is predicted to answer in time: served late, or refused with HTTP 503 so "
        "that those inside stay in time.",
    )


class ScenariosConfig(Settings):
    """The three scenarios; a request chooses by the header `x-bitgear-scenario`, else its group's default holds."""

    realtime: ScenarioConfig = Field(
        default_factory=lambda: ScenarioConfig(ttft_ms=1000, e2e_ms=15000, gives_way="quality"),
        description="Chat: first token and whole answer inside a target.",
    )
    batch: ScenarioConfig = Field(
        default_factory=lambda: ScenarioConfig(gives_way="speed"),
        description="Most tokens/s in all; latency does not matter.",
    )
    edge: ScenarioConfig = Field(
        default_factory=lambda: ScenarioConfig(ttft_ms=5000, gives_way="quality", prefer="lowest_precision"),
        description="One small machine: lowest precision first.",
    )

    @model_validator(mode="before")
    @classmethod
    def _keep_defaults(cls, data: Any) -> Any:
        # Who changes one target of a scenario keeps the rest of that scenario.
        if not isinstance(data, dict):
            return data
        kept = {name: field.get_default(call_default_factory=True) for name, field in cls.model_fields.items()}
        return {
            name: {**kept[name].model_dump(), **given} if name in kept and isinstance(given, dict) else given
            for name, given in data.items()
        }


class BreakerConfig(Settings):
    """When a replica is taken out, and how it comes back."""

    failures: int = Field(3, ge=1, description="Failures in a row that open the breaker at once.")
    open_s: float = Field(
        2.0, gt=0, description="First pause before a half-open probe, seconds; doubles up to open_max_s."
    )
    open_max_s: float = Field(60.0, gt=0, description="Longest pause, seconds.")


class HealthConfig(Settings):
    """How replicas are watched."""

    metrics_interval_s: float = Field(1.0, gt=0, description="Between two reads of a replica's /metrics, seconds.")
    probe_interval_s: float = Field(1.0, gt=0, description="Between two probes of a replica that isn't ready, seconds.")
    probe_timeout_s: float = Field(
        60.0, gt=0, description="Longest real completion that proves a replica ready, seconds."
    )
    stale_s: float = Field(10.0, gt=0, description="Age at which a replica's last /metrics no longer counts, seconds.")


class ClassifierConfig(Settings):
    """What estimates the risk of each precision."""

    model: str = Field(
        "default", description="One of those shipped: default, guarded, linear, length, constant, random."
    )
    artefact: str | None = Field(None, description="File of a trained artefact. None: the one shipped with Bitgear.")


class EventsConfig(Settings):
    """One event per request in a Redis stream: the decision and its outcome, never the prompt."""

    enabled: bool = Field(True, description="Write events.")
    stream: str = Field("bitgear:events", description="Name of the Redis stream.")
    max_length: int = Field(100_000, ge=100, description="Events kept in the stream (about).")
    buffer: int = Field(
        4096, ge=16, description="Events kept in memory while Redis is away; more are dropped and counted."
    )
    max_per_s: float = Field(
        1000,
        gt=0,
        description="Events per second and worker above which only a random share is kept; each says its probability.",
    )


class CacheConfig(Settings):
    """Answers kept in Redis; by itself only those of requests whose answer repeats (temperature 0, a seed)."""

    enabled: bool = Field(True, description="Answer from the cache, and keep answers.")
    url: str | None = Field(
        None,
        pattern=r"^(rediss?|unix|rediss?\+sentinel|rediss?\+cluster)://",
        description="Redis of the answers alone; a cluster by redis+cluster://HOST:PORT,HOST:PORT. None: `redis.url`.",
    )
    requests: Literal["none", "deterministic", "all"] = Field(
        "deterministic",
        description="Which requests use it when their cache-control header says nothing; deterministic: temperature 0, "
        "a seed, or embeddings.",
    )
    ttl_s: float = Field(86_400, ge=1, description="How long an answer is kept, seconds.")
    ttl_jitter: float = Field(
        0.1, ge=0, le=0.9, description="Share by which that time is cut at random, so that not all ends at once."
    )
    timeout_ms: float = Field(
        100, gt=0, description="Longest wait for Redis; after one late answer requests no longer ask, milliseconds."
    )
    max_request_kib: float = Field(1024, gt=0, description="Largest request that uses the cache, KiB.")
    max_entry_kib: float = Field(1024, gt=0, description="Largest answer that is kept, KiB.")
    compress_above_bytes: int = Field(1024, ge=0, description="Answers above this are compressed, bytes.")
    tenant_header: str = Field(
        "authorization",
        pattern=r"^[a-z0-9-]+$",
        description="Header that tells tenants apart, in lower case; no answer passes from one to another.",
    )
    encryption_key_env: str | None = Field(
        None,
        description="Environment variable with 32 bytes (64 hexadecimal digits, or base64) that encrypt what is kept. "
        "None: kept as it is.",
    )
    single_flight: bool = Field(True, description="Identical requests wait for one upstream call.")
    wait_s: float = Field(60, gt=0, description="Longest wait for another request's upstream call, seconds.")
    lease_s: float = Field(
        5, ge=0.5, description="How long other workers wait for one that asks upstream and has crashed, seconds."
    )

    @field_validator("url")
    @classmethod
    def _ports(cls, url: str | None) -> str | None:
        _check_ports(url)
        return url


class GroupCacheConfig(Settings):
    """What one group does otherwise than `cache` says."""

    requests: Literal["none", "deterministic", "all"] | None = Field(
        None, description="Which requests use the cache. None: as `cache.requests` says."
    )
    ttl_s: float | None = Field(None, ge=1, description="How long an answer is kept, seconds. None: `cache.ttl_s`.")
    semantic: SemanticConfig = Field(
        default_factory=SemanticConfig, description="Answers to the same question in other words."
    )


class LocalConfig(Settings):
    """The model served by `bitgear up` when no group is configured."""

    model: str = Field("smollm2-135m", description="Checkpoint folder, model name, or a built-in: smollm2-135m, tiny.")
    precisions: tuple[Precision, ...] = Field(("fp16", "int8", "int4"), description="Variants to serve.")
    home: str = Field("~/.bitgear", description="Folder of made checkpoints, logs and private state.")
    first_port: int = Field(8410, ge=1, le=65000, description="First port tried for launched servers.")
    python: str | None = Field(None, description="Python that has vLLM. None: the one Bitgear itself runs in.")


class GroupConfig(Settings):
    """One logical model and its variants."""

    scenario: ScenarioName = Field("realtime", description="Scenario of requests that name none.")
    thresholds: dict[Precision, Threshold] = Field(
        default_factory=dict,
        description="Highest risk that a precision may take; missing ones come from `thresholds`.",
    )
    cache: GroupCacheConfig = Field(
        default_factory=GroupCacheConfig, description="What this group does otherwise than `cache` says."
    )
    classifier: str | None = Field(
        None,
        description="File of a classifier made from this group's own variants (`bitgear calibrate`). "
        "None: the one of `classifier`.",
    )
    base_model: str | None = Field(
        None, description="Full-precision checkpoint from which variants of kind vllm are made."
    )
    backends: tuple[BackendSettings, ...] = Field(description="The variants.", min_length=1)

    @model_validator(mode="after")
    def _check(self) -> GroupConfig:
        names = [b.variant for b in self.backends]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ValueError(f"two variants are named {twice[0]!r}; give one of them a `name`")
        if all(b.is_last_resort for b in self.backends):
            raise ValueError("every variant is a last resort; at least one must not be")
        return self


class Config(Settings):
    """Everything; one file starts Bitgear."""

    server: ServerConfig = Field(default_factory=ServerConfig, description="The OpenAI-compatible API.")
    admin: AdminConfig = Field(default_factory=AdminConfig, description="The admin API.")
    redis: RedisConfig = Field(default_factory=RedisConfig, description="Shared state.")
    timeouts: TimeoutConfig = Field(default_factory=TimeoutConfig, description="Limits on one upstream request.")
    breaker: BreakerConfig = Field(default_factory=BreakerConfig, description="Taking failing replicas out.")
    health: HealthConfig = Field(default_factory=HealthConfig, description="Watching replicas.")
    scenarios: ScenariosConfig = Field(
        default_factory=ScenariosConfig, description="Latency targets and what gives way."
    )
    thresholds: dict[Precision, Threshold] = Field(
        default_factory=dict,
        description="Highest risk that a precision may take, for groups that say nothing; "
        "those left out are the classifier's own recommendation.",
    )
    balancer: Literal["least_loaded", "power_of_two", "round_robin"] = Field(
        "least_loaded", description="Choice among the replicas of a variant."
    )
    classifier: ClassifierConfig = Field(default_factory=ClassifierConfig, description="Estimating risk.")
    events: EventsConfig = Field(default_factory=EventsConfig, description="Events for tuning.")
    cache: CacheConfig = Field(default_factory=CacheConfig, description="Answers kept in Redis.")
    feedback: FeedbackConfig = Field(
        default_factory=FeedbackConfig, description="What applications say of answers' quality."
    )
    exploration: ExplorationConfig = Field(
        default_factory=ExplorationConfig, description="Trying other variants, so that their quality becomes known."
    )
    shadow: ShadowConfig = Field(
        default_factory=ShadowConfig, description="Answers compared with full precision's, off the hot path."
    )
    tuning: TuningConfig = Field(default_factory=TuningConfig, description="Jobs that choose thresholds.")
    cost: CostConfig = Field(default_factory=CostConfig, description="What a second of a GPU costs.")
    logging: LoggingConfig = Field(default_factory=LoggingConfig, description="Log lines.")
    tracing: TracingConfig = Field(default_factory=TracingConfig, description="OpenTelemetry traces.")
    drift: DriftConfig = Field(
        default_factory=DriftConfig, description="Comparing traffic with what the classifier was made for."
    )
    local: LocalConfig = Field(
        default_factory=LocalConfig, description="What `bitgear up` serves when `groups` is empty."
    )
    keys: dict[str, KeyRecord] = Field(
        default_factory=dict,
        description="API keys of applications by name; none, here or made by the admin API: everybody is served.",
    )
    policy: Literal["adaptive", "full_precision"] = Field(
        "adaptive", description="How a variant is chosen: adaptive, or full_precision as long as it lives."
    )
    policy_version: str = Field(
        "v1",
        description="Version of thresholds and policy, given back in each decision until the first change through the "
        "admin API; from then on it is the control document's number.",
    )
    groups: dict[str, GroupConfig] = Field(default_factory=dict, description="Model groups by name.")

    @model_validator(mode="after")
    def _check(self) -> Config:
        for name in self.groups:
            if not name or not name.isprintable() or any(c in name for c in ' @;="'):
                raise ValueError(f"groups: {name!r} is not a name (no spaces, no @ ; = or quotes)")
        if self.server.port and (self.server.host, self.server.port) == (self.admin.host, self.admin.port):
            raise ValueError(f"server.port and admin.port are both {self.server.port}; they need one each")
        return self

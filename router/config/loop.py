"""Settings of the loop that tunes thresholds: exploration, feedback, shadow pairs, tuning jobs, the fast inner loop."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from backends.settings import Settings, check_url

JUDGE_NAMES = ("validity", "choice", "match", "embedding", "llm")

_SHARE_WHERE_TUNED = 0.02
TuningMode = Literal["off", "manual", "automatic"]


class ExplorationConfig(Settings):
    """A small share of requests takes another variant than the best one, so that its outcome becomes known."""

    share: float | None = Field(
        None, ge=0, le=0.2, description="Share of requests that explore. None: 0.02 where tuning is on, else 0."
    )
    max_risk: float = Field(
        0.3, ge=0, le=1, description="No exploration of a precision whose risk for the request is above this."
    )

    def effective_share(self, tuning: TuningMode) -> float:
        """Return the share that holds under this mode of tuning."""
        return _share(self.share, tuning)


class FeedbackConfig(Settings):
    """What applications say of answers: `POST /v1/feedback`."""

    enabled: bool = Field(True, description="Take feedback.")
    window_s: float = Field(
        86_400,
        ge=60,
        description="How long after its answer feedback is taken, seconds; later it is refused. Each answer takes some "
        "250 bytes of Redis for that time.",
    )
    stream: str = Field("bitgear:feedback", description="Name of the Redis stream.")
    max_length: int = Field(100_000, ge=100, description="Entries kept in the stream (about).")
    comment_chars: int = Field(2000, ge=0, description="Longest comment that is kept; 0 keeps none.")
    regeneration_s: float = Field(
        120,
        ge=0,
        description="The same chat request by the same tenant within this time says that the first answer was not "
        "good, seconds; 0: it says nothing.",
    )


class ShadowConfig(Settings):
    """A share of requests is answered at full precision too, off the hot path, and the two answers are compared."""

    share: float | None = Field(
        None, ge=0, le=1, description="Share of requests answered twice. None: 0.02 where tuning is on, else 0."
    )
    trial_share: float = Field(
        1.0,
        ge=0,
        le=1,
        description="The same share for explored requests and a canary's, where `share` is above 0: what a job and a "
        "trial wait for. A label counts so much less as its request was drawn more often.",
    )
    trial_per_s: float = Field(
        1.0, ge=0, description="Most requests per second and worker drawn at trial_share; more are drawn at share."
    )
    judges: tuple[str, ...] = Field(
        ("validity", "choice", "match"),
        description="Judges, asked in turn until one can tell: validity, choice, match, embedding, llm.",
    )
    lower_share: float = Field(
        0.25,
        ge=0,
        le=1,
        description="Of the sampled requests that full precision answered: share that a lower one is asked as well.",
    )
    max_running: int = Field(2, ge=1, description="Most shadow requests at once per worker; more are let go.")
    max_load: float = Field(
        0.5,
        ge=0,
        le=1,
        description="A shadow is sent only while no request of the variant that it asks waits and its KV cache is "
        "used less than this.",
    )
    max_output_tokens: int = Field(1024, ge=1, description="Longest answer that is compared, tokens.")
    features: bool = Field(
        True,
        description="Keep the classifier's features of the request with each pair (24 counts and shares, no text), from which "
        "the group's classifier can be retrained.",
    )
    judge_model: str | None = Field(None, description="Model of the LLM judge, as its server names it.")
    judge_url: str | None = Field(
        None,
        description="Base URL of the LLM judge's OpenAI-compatible server, without `/v1`. None: the sidecar of the "
        "first variant of kind litellm.",
    )
    judge_key_env: str | None = Field(None, description="Environment variable with the judges' API key.")
    judge_timeout_s: float = Field(60, gt=0, description="Longest wait for a judge's server, seconds.")
    embedding_url: str | None = Field(
        None, description="Base URL of the server for the embedding judge, without `/v1`."
    )
    embedding_model: str | None = Field(None, description="Model of the embedding judge, as its server names it.")

    @field_validator("judges")
    @classmethod
    def _known(cls, judges: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in judges if name not in JUDGE_NAMES]
        if unknown:
            raise ValueError(f"judges: {unknown[0]!r} is none of {', '.join(JUDGE_NAMES)}")
        return judges

    @field_validator("judge_url", "embedding_url")
    @classmethod
    def _url(cls, url: str | None) -> str | None:
        if url is not None:
            check_url(url)
        return url

    def effective_share(self, tuning: TuningMode) -> float:
        """Return the share that holds under this mode of tuning."""
        return _share(self.share, tuning)


def _share(configured: float | None, tuning: TuningMode) -> float:
    if configured is not None:
        return configured
    return 0.0 if tuning == "off" else _SHARE_WHERE_TUNED


class InnerLoopConfig(Settings):
    """Thresholds that move with load within the bounds that tuning set: seconds, not hours."""

    enabled: bool = Field(True, description="Move thresholds with load, where a tuning job or a person has set bounds.")
    interval_s: float = Field(1.0, gt=0, description="Between two steps, seconds.")
    target: float = Field(0.95, gt=0, lt=1, description="Share of requests that should meet their latency targets.")
    gain: float = Field(0.5, gt=0, le=5, description="Proportional gain: move per unit of missed share.")
    integral_s: float = Field(10.0, gt=0, description="Integral time, seconds; the integral stops at the bounds.")


class TuningConfig(Settings):
    """Jobs that choose thresholds from recorded traffic and feedback."""

    mode: TuningMode = Field(
        "off", description="off; manual: jobs propose and a person approves; automatic: jobs publish to a canary."
    )
    interval_s: float = Field(3600, ge=10, description="Between two scheduled jobs, seconds.")
    window_s: float = Field(86_400, ge=60, description="How far back a job looks, seconds.")
    max_records: int = Field(50_000, ge=100, description="Most requests that a job reads.")
    objective: Literal["goodput", "quality"] = Field(
        "goodput",
        description="goodput: the most tokens/s in time, quality's lower bound at or above the target; quality: the "
        "most quality, the latency target met.",
    )
    margin: float = Field(0.01, gt=0, lt=1, description="How much worse than full precision is acceptable, as a share.")
    confidence: float = Field(0.95, gt=0.5, lt=1, description="Confidence of intervals and tests.")
    min_records: int = Field(500, ge=10, description="A job with fewer requests changes nothing.")
    min_labels: int = Field(100, ge=10, description="A job with fewer quality labels changes nothing.")
    retrain_pairs: int = Field(
        0,
        ge=0,
        description="Retrain a group's classifier when so many pairs came since the last time. 0: only when asked "
        "(`bitgear tune GROUP --classifier`). Needs the extra `train`.",
    )
    max_step: float = Field(
        0.1, gt=0, le=1, description="Longest move of a threshold in one job, as a share of traffic that changes sides."
    )
    cooldown_s: float = Field(600, ge=0, description="Least time between two changes, seconds.")
    min_gain: float = Field(
        0.02,
        ge=0,
        description="A change must promise at least this much more, or half of it at its lower bound (hysteresis).",
    )
    canary_share: float = Field(0.1, gt=0, le=0.5, description="Share of traffic that tries a change first.")
    canary_min_records: int = Field(200, ge=10, description="Requests a canary needs before it may be promoted.")
    canary_max_s: float = Field(3600, ge=10, description="A canary undecided for this long is rolled back, seconds.")
    max_weight_per_key: float = Field(
        0.2, gt=0, le=1, description="Largest share of the quality evidence that one API key may give."
    )
    report_folder: str | None = Field(
        None,
        description="Folder for the newest 200 jobs' reports (JSON, Markdown, SVG). None: `tuning` in Bitgear's state "
        "folder; empty: none is written, Redis keeps them for 30 days.",
    )
    inner_loop: InnerLoopConfig = Field(default_factory=InnerLoopConfig, description="Thresholds that move with load.")

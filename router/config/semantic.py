"""Settings of the answers that a group takes for other wordings of a question."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from backends.settings import Settings, check_url


class EmbeddingConfig(Settings):
    """A server of sentence vectors, OpenAI-compatible (`/v1/embeddings`): by `url`, or as a `group` of this file."""

    url: str | None = Field(None, description="Base URL, without `/v1`.")
    group: str | None = Field(None, description="Group of models that gives the vectors; its first variant is asked.")
    model: str | None = Field(None, description="Name of the model. None: as the group's variant is served.")
    key_env: str | None = Field(None, description="Environment variable with the server's API key.")
    timeout_ms: float = Field(
        200, gt=0, le=10_000, description="Longest wait for a vector; without one the request misses, milliseconds."
    )
    threshold: float = Field(
        0.96, ge=0, le=1, description="Least cosine of two vectors; in place of the `threshold` beside `embedding`."
    )
    most: int = Field(10_000, ge=1, description="Vectors that a worker keeps for the group; the oldest go first.")

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        if value is not None:
            check_url(value)
        return value

    @model_validator(mode="after")
    def _one_server(self) -> EmbeddingConfig:
        if (self.url is None) == (self.group is None):
            raise ValueError("either `url` or `group` must be given")
        if self.url is not None and self.model is None:
            raise ValueError("`url` needs a `model`")
        return self


class SemanticConfig(Settings):
    """Answers to the same question in other words. Every word that is on no list of harmless ones must be the same."""

    enabled: bool = Field(False, description="Take answers to other wordings of the last user turn.")
    threshold: float = Field(
        0.4, ge=0, le=1, description="Least likeness of two wordings (cosine of hashed words and trigrams)."
    )
    guard: Literal["strict", "content"] = Field(
        "strict",
        description="What must be equal; strict: every word but harmless ones; content: numbers, names, negations, "
        "opposites, units, code and order, which needs an `embedding`.",
    )
    embedding: EmbeddingConfig | None = Field(
        None, description="Whose vectors say how alike two wordings are. None: Bitgear's own, of hashed words."
    )
    sample: float = Field(
        0.05, ge=0, le=1, description="Share of such hits that are answered afresh instead, and compared."
    )
    max_wrong: float = Field(
        0.02, ge=0, le=1, description="Share of compared answers that may differ; above it the threshold rises by 0.05."
    )

    @model_validator(mode="after")
    def _check(self) -> SemanticConfig:
        if self.guard == "content" and self.embedding is None:
            raise ValueError("guard: content needs an `embedding`: hashed words do not know what words mean")
        return self

    @property
    def least(self) -> float:
        """The threshold of the vectors that are used."""
        return self.embedding.threshold if self.embedding is not None else self.threshold

"""Made-up log-probabilities of a prompt's tokens."""

from __future__ import annotations

from typing import Any

from backends.simulator import tokens
from backends.simulator.answers import logprobs
from backends.simulator.text import seed_of


def prompt_logprobs(prompt: str, top: int | None) -> list[dict[int, dict[str, Any]] | None] | None:
    """`prompt_logprobs`: for each token but the first, by token id, itself and the `top` likeliest."""
    if top is None:
        return None
    seed = seed_of("prompt", prompt)
    result: list[dict[int, dict[str, Any]] | None] = [None]
    for position, piece in enumerate(tokens.pieces(prompt)[1:], start=1):
        own, ranked = logprobs(seed, position, piece, max(1, top))
        result.append(
            {
                tokens.number(item.token): {"logprob": item.logprob, "rank": item.rank, "decoded_token": item.token}
                for item in (own, *ranked)
            }
        )
    return result


__all__ = ["prompt_logprobs"]

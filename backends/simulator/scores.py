"""Made-up log-probabilities of a prompt's tokens."""

from __future__ import annotations

from typing import Any

from backends.simulator import tokens
from backends.simulator.answers import TokenLogprob, logprobs
from backends.simulator.text import seed_of


def prompt_scores(prompt: str, top: int) -> list[tuple[str, tuple[TokenLogprob, list[TokenLogprob]] | None]]:
    """Each token of `prompt` with its own score and the `top` likeliest; the first token has none."""
    seed = seed_of("prompt", prompt)
    return [
        (piece, None if position == 0 else logprobs(seed, position, piece, top))
        for position, piece in enumerate(tokens.pieces(prompt))
    ]


def prompt_logprobs(prompt: str, top: int | None) -> list[dict[int, dict[str, Any]] | None] | None:
    """`prompt_logprobs`: for each token but the first, by token id, itself and the `top` likeliest."""
    if top is None:
        return None
    return [
        None
        if score is None
        else {
            tokens.number(item.token): {"logprob": item.logprob, "rank": item.rank, "decoded_token": item.token}
            for item in (score[0], *score[1])
        }
        for _, score in prompt_scores(prompt, top)
    ]


__all__ = ["prompt_logprobs", "prompt_scores"]

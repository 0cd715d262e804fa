"""A starting server's phase in words, read from the end of its log."""

from __future__ import annotations

from backends.vllm.progress import progress_of


def phase_words(kind: str, phase: str, tail: str) -> str:
    """`phase` (as the supervisor knows it), and for vLLM what its log says it does."""
    if kind != "vllm" or phase != "starting":
        return phase
    return progress_of(tail) if tail.strip() else phase


__all__ = ["phase_words"]

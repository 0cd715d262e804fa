"""A starting server's phase in words, read from the end of its log."""

from __future__ import annotations

import re

_LONGEST = 80
_NOISE = re.compile(r"^\s*(\([^)]*\)\s*)*(INFO|WARNING|ERROR|DEBUG)?\s*([\d-]+ [\d:,]+)?\s*(\[[^\]]*\])?\s*:?\s*")


def phase_words(kind: str, phase: str, tail: str) -> str:
    """`phase` (as the supervisor knows it), and for vLLM what its log says it does."""
    if kind != "vllm":
        return phase
    lines = [line for line in tail.splitlines() if line.strip()]
    if not lines:
        return phase
    last = _NOISE.sub("", lines[-1]).strip()
    return f"{phase}: {last[:_LONGEST]}" if last else phase


__all__ = ["phase_words"]

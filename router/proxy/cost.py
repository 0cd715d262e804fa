"""What a request costs its API key in tokens: as far as can be told before it runs, and when it has ended."""

from __future__ import annotations

from router.proxy.deciding import Question
from router.proxy.outcome import Outcome


def expected_cost(outcome: Outcome, question: Question) -> int:
    """Return the prompt's tokens as estimated, and as many generated ones as the group's answers have, the client's
    limit at most. Paths that only pass through: 0, as nobody knows what they compute."""
    facts, endpoint = question.facts, outcome.endpoint
    if not (endpoint.generates or endpoint.one_precision):
        return 0
    prompt = facts.prompt_tokens
    if outcome.group is not None:
        lengths = [variant.max_model_len for variant in outcome.group.variants.values()]
        longest = max((n for n in lengths if n is not None), default=None)
        if longest is not None:
            # What is too long for every variant is refused: until then it must not shut the key out.
            prompt = min(prompt, longest * outcome.sequences)
    return prompt + facts.output_tokens * outcome.sequences if endpoint.generates else prompt


def cost(outcome: Outcome, expected: float) -> float:
    """Return the tokens that an ended request cost; `expected` is what was taken for it before.

    Answers of the cache cost nothing, those of a variant what it counted. Of a stream that was cut the variant counted
    nothing: its events stand for tokens. Of a plain answer that its client did not wait for nobody knows more than was
    expected. What failed before its first token costs nothing.
    """
    if outcome.cache == "hit" or outcome.attempts == 0:
        return 0.0
    usage, question = outcome.usage, outcome.question
    if usage is not None:
        generated = usage.completion_tokens
        if not outcome.ok and outcome.endpoint.dialect == "anthropic":
            # Such a stream begins with a usage, of the prompt alone.
            generated = max(generated, outcome.pieces)
        return float(usage.prompt_tokens + generated)
    prompt = question.facts.prompt_tokens if question is not None else 0
    if outcome.pieces and outcome.endpoint.generates:
        return float(prompt + outcome.pieces)
    if outcome.status == 499 and outcome.stream and outcome.endpoint.generates:
        return float(prompt)
    return expected if outcome.ok or outcome.status == 499 else 0.0


__all__ = ["cost", "expected_cost"]

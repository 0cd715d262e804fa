"""Which tokens an answer has, where it ends and why: decided before the first token is sent."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from backends.simulator import tokens
from backends.simulator.text import seed_of


@dataclass(frozen=True, slots=True)
class Rules:
    """What ends an answer."""

    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    stops: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    include_stop: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """One finished answer, token by token."""

    raw: tuple[str, ...]
    """The tokens; an empty text is the token that ends the answer."""
    visible: tuple[str, ...]
    """What the client sees of each token: nothing of a stop string."""
    finish_reason: str
    stop_reason: str | int | None = None
    tool: str | None = None
    """Name of the function, if the text is the arguments of a call."""
    tool_id: str = ""
    tool_at: int = 0
    """Position of the token after which the name is known; the arguments follow."""
    logprob_seed: int = 0

    @property
    def text(self) -> str:
        """All that the client sees."""
        return "".join(self.visible)


def make(source: Iterable[str], length: int | None, rules: Rules, seed: int) -> Answer:
    """An answer of tokens from `source`: `length` of them, or all if None, then the end token, unless a rule cuts it.

    A source of given length None is finite (JSON of a schema) and ends whatever `ignore_eos` and `min_tokens` say, as
    a grammar does.
    """
    if length is not None and rules.ignore_eos:
        raw = list(islice(source, rules.max_tokens))
    else:
        most = rules.max_tokens if length is None else min(rules.max_tokens, max(length, rules.min_tokens))
        raw = list(islice(source, most))
        if len(raw) < rules.max_tokens:
            raw.append("")
    visible, finish_reason, stop_reason = _cut(raw, rules)
    if finish_reason is None:
        finish_reason = "stop" if raw[-1] == "" else "length"
    return Answer(tuple(raw[: len(visible)]), tuple(visible), finish_reason, stop_reason, logprob_seed=seed)


def make_call(name: str, arguments: str, tool_id: str, rules: Rules, seed: int) -> Answer:
    """A call of function `name`: its markup takes tokens, as a model's does, and only the arguments are shown."""
    head = tokens.pieces(f"<{name}>")
    body = tokens.pieces(arguments)
    raw = [*head, *body, ""]
    visible = [piece if len(head) <= index < len(head) + len(body) else "" for index, piece in enumerate(raw)]
    reason = "stop" if len(raw) <= rules.max_tokens else "length"
    kept = slice(rules.max_tokens)
    return Answer(tuple(raw[kept]), tuple(visible[kept]), reason, None, name, tool_id, len(head) - 1, logprob_seed=seed)


def _cut(raw: Sequence[str], rules: Rules) -> tuple[list[str], str | None, str | int | None]:
    """Where a stop string or token ends the answer: the visible text of each token kept, and why it ended."""
    if not rules.stops and not rules.stop_token_ids:
        return list(raw), None, None
    text = ""
    lengths: list[int] = []
    longest = max((len(stop) for stop in rules.stops), default=0)
    for index, piece in enumerate(raw):
        text += piece
        lengths.append(len(text))
        if index < rules.min_tokens:
            continue
        if rules.stop_token_ids and (token := tokens.number(piece)) in rules.stop_token_ids:
            end = len(text) if rules.include_stop else len(text) - len(piece)
            return _held_back(text[:end], lengths, rules, longest), "stop", token
        start = max(0, len(text) - len(piece) - longest + 1)
        for stop in rules.stops:
            at = text.find(stop, start)
            if at >= 0:
                end = at + len(stop) if rules.include_stop else at
                return _held_back(text[:end], lengths, rules, longest), "stop", stop
    return _held_back(text, lengths, rules, longest), None, None


def _held_back(text: str, lengths: list[int], rules: Rules, longest: int) -> list[str]:
    """`text` as it is shown token by token, when `lengths` characters are known after each.

    As vLLM does, what may be the beginning of a stop string is shown only when it is clear that it is none, or at the
    end.
    """
    kept = 0 if rules.include_stop or not longest else longest - 1
    visible: list[str] = []
    shown = 0
    for index, known in enumerate(lengths):
        end = len(text) if index == len(lengths) - 1 else min(max(shown, known - kept), len(text))
        visible.append(text[shown:end])
        shown = end
    return visible


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely a token was; `rank` 1 is the likeliest."""

    token: str
    logprob: float
    rank: int


_ALTERNATIVES = (" the", " a", " of", " it", " and", ".", ",", " to", " in", " one", " as", " or", "\n", " at", " so",
                 " by", " if", " no", " we", " is", " be", " on", " for", " not")  # fmt: skip


def logprobs(seed: int, position: int, token: str, alternatives: int) -> tuple[TokenLogprob, list[TokenLogprob]]:
    """A made-up distribution at one position: the token itself, and the `alternatives` likeliest (the token first)."""
    rng = random.Random(seed_of(seed, position))
    value = -rng.expovariate(2.0)
    own = TokenLogprob(token, value, 1)
    ranked = [own]
    for other in _ALTERNATIVES:
        if len(ranked) >= alternatives:
            break
        if other != token:
            value -= 0.1 + rng.expovariate(1.0)
            ranked.append(TokenLogprob(other, value, len(ranked) + 1))
    return own, ranked[:alternatives]


__all__ = ["Answer", "Rules", "TokenLogprob", "logprobs", "make", "make_call"]

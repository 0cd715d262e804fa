"""What the simulator says: deterministic sentences that say nothing, plainly marked as simulated."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b

from backends.simulator import tokens

_WORDS = (
    "the answer keeps a steady pace while every token waits its turn in the batch and the cache grows by one "
    "block at a time so that a reader sees words arrive as they would from a model of this size under this load "
    "but no claim is made here about what is true because these words were drawn from a short list with a seed"
)
_ENGLISH = tuple(_WORDS.split())
_CHINESE = tuple("这是模拟的回答每个词都来自固定的词表速度由公式给出内容没有意义请勿当作真实模型的输出")


def seed_of(*parts: object) -> int:
    """A seed that depends on every part and on nothing else."""
    digest = blake2b(digest_size=8)
    for part in parts:
        data = str(part).encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return int.from_bytes(digest.digest(), "little")


def mark(precision: str) -> str:
    """The words with which every answer in prose begins."""
    return f"[simulated {precision}]"


def answer(seed: int, precision: str, *, chinese: bool) -> Iterator[str]:
    """The tokens of an endless answer."""
    yield from tokens.pieces(mark(precision))
    rng = random.Random(seed)
    while True:
        yield from _chinese_sentence(rng) if chinese else _english_sentence(rng)


def natural_length(seed: int, mean: int) -> int:
    """How many tokens an answer has if nothing cuts it: gamma with shape 2 and the given mean, at least 1."""
    return max(1, round(random.Random(seed ^ 0x5DEECE66D).gammavariate(2.0, mean / 2)))


def is_chinese(text: str) -> bool:
    """Whether at least a fifth of the end of `text` are Chinese characters."""
    tail = text[-200:]
    return 5 * sum("\u4e00" <= character <= "\u9fff" for character in tail) >= max(1, len(tail))


@lru_cache(maxsize=1024)
def _word(word: str) -> tuple[str, ...]:
    return tuple(tokens.pieces(word))


def _english_sentence(rng: random.Random) -> Iterator[str]:
    words = rng.choices(_ENGLISH, k=rng.randint(6, 16))
    yield from _word(" " + words[0].capitalize())
    for word in words[1:]:
        yield from _word(" " + word)
    yield "."


def _chinese_sentence(rng: random.Random) -> Iterator[str]:
    yield from rng.choices(_CHINESE, k=rng.randint(8, 20))
    yield "。"


__all__ = ["answer", "is_chinese", "mark", "natural_length", "seed_of"]

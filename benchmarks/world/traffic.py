"""Requests that come: when, how long, how risky, under which scenario."""

from __future__ import annotations

import csv
import gzip
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple


class Arrival(NamedTuple):
    """One request."""

    at: float
    """Virtual time, seconds."""
    prompt_tokens: int
    output_tokens: int
    """Length of its answer, at whichever precision; the router does not know it beforehand."""
    risks: Mapping[str, float]
    """What the classifier says, by precision."""
    scenario: str = "realtime"
    key: str = ""
    """Digest of the API key that sent it."""
    difficulty: float = 0.0
    """Added to its true risk and hidden from the classifier: traffic that turns hard."""


Draw = Callable[[random.Random], tuple[int, int, Mapping[str, float]]]
"""Draws prompt tokens, output tokens and risks of one request."""


def poisson(
    rate: float | Callable[[float], float],
    seconds: float,
    draw: Draw,
    *,
    seed: int,
    scenario: str = "realtime",
    keys: Sequence[str] = ("",),
    start: float = 0.0,
    peak: float | None = None,
) -> Iterator[Arrival]:
    """Yield Poisson arrivals over `seconds`; `rate` in requests/s, a number or a function of virtual time.

    A varying rate needs `peak`, an upper bound of it: arrivals at the peak's rate are thinned (Lewis and Shedler, 1979).
    """
    generator = random.Random(seed)
    if callable(rate):
        if peak is None:
            raise ValueError("a rate that varies needs its peak")
        bound, varying = peak, rate
    else:
        bound, varying = rate, None
    now = start
    while True:
        now += generator.expovariate(bound)
        if now >= start + seconds:
            return
        if varying is not None and generator.random() * bound > varying(now):
            continue
        prompt, output, risks = draw(generator)
        yield Arrival(now, prompt, output, risks, scenario, generator.choice(keys) if len(keys) > 1 else keys[0])


def lognormal(
    prompt_mean: float = 600, output_mean: float = 150, sigma: float = 0.8, longest: int = 6000
) -> Callable[[random.Random], tuple[int, int]]:
    """Return a draw of (prompt tokens, output tokens), both log-normal with these means, at least 1 and at most `longest`."""

    def draw(generator: random.Random) -> tuple[int, int]:
        lengths = (
            generator.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma) for mean in (prompt_mean, output_mean)
        )
        prompt, output = (min(longest, max(1, round(length))) for length in lengths)
        return prompt, output

    return draw


def beta_risks(
    scale: Mapping[str, float] | None = None, a: float = 0.6, b: float = 3.0
) -> Callable[[random.Random], dict[str, float]]:
    """Return a draw of risks: one hardness per request, Beta(a, b), times each precision's `scale`, cut at 1.

    The default scale is int8 0.2, int4 1: most requests are easy, a few are hard, and both risks rise together.
    """
    factors = dict(scale or {"int8": 0.2, "int4": 1.0})

    def draw(generator: random.Random) -> dict[str, float]:
        hardness = generator.betavariate(a, b)
        return {precision: min(1.0, factor * hardness) for precision, factor in factors.items()}

    return draw


def mixed(
    lengths: Callable[[random.Random], tuple[int, int]], risks: Callable[[random.Random], Mapping[str, float]]
) -> Draw:
    """Return a draw whose lengths and risks are independent."""

    def draw(generator: random.Random) -> tuple[int, int, Mapping[str, float]]:
        prompt, output = lengths(generator)
        return prompt, output, risks(generator)

    return draw


def merged(*streams: Iterable[Arrival]) -> list[Arrival]:
    """Return all arrivals in the order of time."""
    return sorted((a for stream in streams for a in stream), key=lambda a: a.at)


class Row(NamedTuple):
    """One row of a trace; `at` seconds after its first row."""

    at: float
    prompt_tokens: int
    output_tokens: int


def read_azure(path: Path) -> list[Row]:
    """Return a file of the Azure LLM inference trace (columns TIMESTAMP, ContextTokens, GeneratedTokens), by time.

    Splitwise (ISCA 2024), Azure Public Dataset, CC-BY 4.0. Raises OSError or ValueError where it can't be read.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    found = []
    with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
        for row in csv.DictReader(file):
            stamp, _, fraction = row["TIMESTAMP"].partition(".")
            at = datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S").timestamp() + float(f"0.{fraction or 0}")
            found.append((at, max(1, int(row["ContextTokens"])), max(1, int(row["GeneratedTokens"]))))
    found.sort()
    return [Row(at - found[0][0], prompt, output) for at, prompt, output in found]

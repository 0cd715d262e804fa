"""Draws any inputs of a decision that a proxy could ever have, and some that it should not.

Values come from short lists, so that ties and exact hits of a limit, where mistakes hide, are common.
"""

from __future__ import annotations

import math
import random

from backends.settings import PRECISION_BITS
from router.decision import Inputs, RequestFacts, Scenario, Speed, VariantState

PRECISIONS = tuple(PRECISION_BITS)
SHARES = (0.0, 0.1, 0.2, 0.2000001, 0.5, 0.9, 1.0)
ODD = (math.nan, math.inf, -math.inf, -1.0, 2.0, 0.0, 0.3, 1.0)


def draw_inputs(rng: random.Random) -> Inputs:
    """Inputs with none to six variants, several of one precision among them, last resorts anywhere."""
    return Inputs(_request(rng), draw_table(rng), draw_table(rng), _variants(rng), _scenario(rng))


def draw_table(rng: random.Random, values: tuple[float, ...] = SHARES) -> dict[str, float]:
    """A number for some of the precisions."""
    return {p: rng.choice(values) for p in PRECISIONS if rng.random() < 0.7}


def draw_speed(rng: random.Random, values: tuple[float, ...] = (0.0, 0.001, 0.02, 0.5, 30.0)) -> Speed | None:
    """A speed, or none."""
    return None if rng.random() < 0.2 else Speed(*(rng.choice(values) for _ in range(4)))


def _variants(rng: random.Random) -> tuple[VariantState, ...]:
    precisions = [rng.choice(PRECISIONS) for _ in range(rng.randrange(7))]
    return tuple(
        VariantState(
            name=f"v{i}",
            precision=precision,
            rank=PRECISION_BITS[precision],
            live=rng.random() < 0.7,
            speed=draw_speed(rng),
            price=rng.choice((0.1, 1.0, 1.0, 7.0)),
            last_resort=rng.random() < 0.2,
            max_model_len=rng.choice((None, 1, 512, 513, 4096)),
        )
        for i, precision in enumerate(precisions)
    )


def _request(rng: random.Random) -> RequestFacts:
    return RequestFacts(
        prompt_tokens=rng.choice((1, 100, 4000)),
        output_tokens=rng.choice((1, 2, 200)),
        least_prompt_tokens=rng.choice((0, 0, 511, 512, 9000)),
        max_tokens=rng.choice((None, None, 1, 512, 513)),
        pin=None if rng.random() < 0.7 else f"v{rng.randrange(7)}",
        max_risk=None if rng.random() < 0.6 else rng.choice(SHARES),
        long_output_tokens=rng.choice((0, 1, 200, 1000)),
    )


def _scenario(rng: random.Random) -> Scenario:
    targets = (None, 0.001, 0.5, 5.0, 100.0)
    return Scenario(
        "s",
        rng.choice(targets),
        rng.choice(targets),
        rng.choice(("speed", "quality")),  # type: ignore[arg-type]
        rng.choice(("cheapest", "lowest_precision")),  # type: ignore[arg-type]
    )

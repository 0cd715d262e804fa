"""Who calls the admin API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple


class Holder(NamedTuple):
    """Whose token it is."""

    name: str
    writes: bool


Holders = Callable[[bytes], Awaitable[Holder | None]]
"""A token to its holder; None for one that is not good."""


__all__ = ["Holder", "Holders"]

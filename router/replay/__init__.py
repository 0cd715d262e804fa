"""Deciding recorded traffic anew under other rules: what would change, and what it would change in speed, cost and risk."""

from router.replay.effect import Effect, Move, effect
from router.replay.recorded import Recorded, recorded
from router.replay.rules import Rules, rules_of

__all__ = ["Effect", "Move", "Recorded", "Rules", "effect", "recorded", "rules_of"]

"""Deciding recorded traffic anew under other rules: what would change, and what it would change in speed, cost and risk."""

from router.replay.dry_run import dry_run
from router.replay.effect import Effect, Move, effect
from router.replay.recorded import Recorded, recorded
from router.replay.rules import Rules, rules_of

__all__ = ["Effect", "Move", "Recorded", "Rules", "dry_run", "effect", "recorded", "rules_of"]

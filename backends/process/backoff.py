"""How long to wait before a process that ended is started again."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """Exponential, with jitter, bounded."""

    first_s: float = 1.0
    factor: float = 2.0
    max_s: float = 60.0
    jitter: float = 0.2
    """Each delay is varied by up to this share, so that several servers don't start in step."""
    healthy_s: float = 60.0
    """A server that was up for this long has earned a new start of the count."""

    def delay(self, failures: int, source: random.Random) -> float:
        """Seconds before the next start after `failures` ends in a row (1 or more)."""
        # Beyond this exponent the bound holds anyway, and the power would overflow.
        plain = min(self.max_s, self.first_s * self.factor ** min(failures - 1, 64))
        return plain * (1 + source.uniform(-self.jitter, self.jitter))

"""What a tuner knows of a group, and where its records come from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from router.config.loop import TuningConfig
from router.control.document import GroupTuning
from router.tuning.records import Record
from router.tuning.replay import Facts

Reader = Callable[[str, float, int], Awaitable[Sequence[Record]]]
"""(group, since in Unix seconds, limit) to the newest records, oldest first."""


class Group(NamedTuple):
    """A group to tune."""

    facts: Facts
    settings: TuningConfig
    base: Mapping[str, float]
    """Thresholds of the configuration and the classifier, where the document has none."""


def present(group: Group, tuning: GroupTuning) -> dict[str, float]:
    """Return the stable thresholds: the document's over the configuration's."""
    return dict(group.base) | {str(p): t for p, t in tuning.thresholds.items()}

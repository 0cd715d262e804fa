"""What can go wrong between Bitgear and a replica."""

from __future__ import annotations

from typing import Literal

Failure = Literal[
    "connect",
    "connect_timeout",
    "first_token_timeout",
    "between_tokens_timeout",
    "total_timeout",
    "closed",
    "protocol",
    "aborted",
]


class UpstreamError(Exception):
    """A request that got no whole answer from its replica.

    `failure` says which limit or event ended it; `stale` is true when a kept-alive connection was found closed before
    the replica can have begun to work on the request, so that sending it again is free of side effects. `own` is true when
    this machine had no descriptor, port or memory for a connection: the replica has no part in it.
    """

    def __init__(self, failure: Failure, message: str, *, stale: bool = False, own: bool = False) -> None:
        super().__init__(message)
        self.failure: Failure = failure
        self.stale = stale
        self.own = own

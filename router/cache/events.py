"""A whole stream's bytes, event by event. (https://html.spec.whatwg.org/multipage/server-sent-events.html)"""

from __future__ import annotations

import re

_END = re.compile(rb"\r\n\r\n|\n\n|\n\r\n|\r\r")


class Unclear(Exception):  # noqa: N818 - not an error: the answer is just not kept
    """A stream that is not fully understood."""


def split_events(raw: bytes) -> list[bytes]:
    """Return the events' bytes, without the empty lines that end them."""
    return raw.split(b"\n\n") if b"\r" not in raw else _END.split(raw)


def data_of(event: bytes) -> bytes | None:
    """Return one event's data; None for an event without."""
    if event.startswith(b"data: ") and b"\n" not in event and b"\r" not in event:
        return event[6:].strip()
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines).strip() if lines else None

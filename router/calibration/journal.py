"""The journal of a calibration: one line per answer, appended as it arrives, so that a run that ended goes on where it was.

It lies beside the artefact, readable by its owner only: it holds answers and the token ids of prompts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any


class JournalError(ValueError):
    """The file is not a journal, or cannot be written."""


def answer_key(*parts: object) -> str:
    """Return the identity of an answer: hash of all that decides it (variant, model, prompt, parameters)."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


class Journal:
    """Answers by key. One writer a file: opening takes a lock that ends with the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records: dict[str, dict[str, Any]] = {}
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Journal:
        """Read what is there, cut a torn last line, and open for appending. Raises `JournalError`."""
        import fcntl

        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise JournalError(f"{self.path}: {error.strerror}") from None
        self._file = os.fdopen(descriptor, "r+b")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise JournalError(f"{self.path}: another run writes it") from None
        good = 0
        for number, line in enumerate(self._file, 1):
            # A killed run may have left half a line, and only as the last one.
            if not line.endswith(b"\n"):
                break
            try:
                record = json.loads(line)
                self._records[record["key"]] = record
            except (ValueError, KeyError, TypeError, RecursionError):
                self._file.close()
                raise JournalError(f"{self.path}:{number}: not a line of a journal") from None
            good += len(line)
        self._file.seek(good)
        self._file.truncate()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        if self._file is not None:
            # What a full disk did not take, `add` has told of.
            with contextlib.suppress(OSError):
                self._file.close()

    def __contains__(self, key: object) -> bool:
        """Whether this answer is there."""
        return key in self._records

    def __len__(self) -> int:
        """Return the number of answers."""
        return len(self._records)

    def get(self, key: str) -> dict[str, Any] | None:
        """Return an answer, or None."""
        return self._records.get(key)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield all answers, in the order of their first arrival."""
        yield from self._records.values()

    def add(self, record: dict[str, Any]) -> None:
        """Append one answer (`record["key"]` names it); it is with the operating system when this returns.

        Raises `JournalError`; what is left of a line then, the next run cuts off.
        """
        assert self._file is not None, "the journal is not open"
        try:
            self._file.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8") + b"\n")
            self._file.flush()
        except OSError as error:
            raise JournalError(f"{self.path}: {error.strerror}") from None
        self._records[record["key"]] = record

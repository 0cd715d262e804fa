from __future__ import annotations

import resource
from pathlib import Path

import pytest

from router.calibration.journal import Journal, JournalError, answer_key


def test_answers_come_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "j.jsonl"
    with Journal(path) as journal:
        journal.add({"key": "a", "text": "你好"})
        journal.add({"key": "b"})
    with Journal(path) as journal:
        assert [r["key"] for r in journal.records()] == ["a", "b"]
        assert "a" in journal
        assert "c" not in journal
        assert journal.get("a") == {"key": "a", "text": "你好"}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_torn_last_line_is_cut_and_written_again(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(b'{"key":"a"}\n{"key":"b","te')
    with Journal(path) as journal:
        assert len(journal) == 1
        journal.add({"key": "b"})
    assert path.read_bytes() == b'{"key":"a"}\n{"key":"b"}\n'


def test_another_file_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello\nworld\n")
    with pytest.raises(JournalError, match=r"notes\.txt:1: not a line of a journal"), Journal(path):
        pass
    assert path.read_text() == "hello\nworld\n"


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with (
        Journal(tmp_path / "j.jsonl"),
        pytest.raises(JournalError, match="another run writes it"),
        Journal(tmp_path / "j.jsonl"),
    ):
        pass


def test_all_that_decides_an_answer_is_in_its_key() -> None:
    assert answer_key("full", "fp16", "m", "", "p", 8) != answer_key("full", "fp16", "m", "", "p", 9)
    assert answer_key("a", "b") == answer_key("a", "b")


def test_a_full_disk_is_told_and_what_was_kept_before_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(path) as journal:
        journal.add({"key": "a"})
        # The kernel refuses what goes beyond, as a full disk does: in the middle of a line.
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            with pytest.raises(JournalError, match=r"j\.jsonl: File too large"):
                journal.add({"key": "b", "text": "x" * 2000})
            assert "b" not in journal
            assert path.stat().st_size == 1000
            journal.__exit__(None, None, None)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with Journal(path) as journal:
        assert [r["key"] for r in journal.records()] == ["a"]
        journal.add({"key": "b"})
    assert path.read_bytes() == b'{"key":"a"}\n{"key":"b"}\n'

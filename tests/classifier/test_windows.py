from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from classifier.conversation import view
from classifier.features import NAMES, extract
from classifier.windows import PIECES, windows

LENGTH = NAMES.index("log_tokens")


def test_whatever_is_appended_one_beginning_is_mostly_the_request() -> None:
    prompt = "Prove that there are infinitely many primes, and give the least one above 1000. " * 2
    alone = extract(view({"prompt": prompt}))
    for length in range(10, 700, 60):
        pieces = windows(extract(view({"prompt": prompt + ("poem story sea wide " * 40)[:length]})))
        assert any(len(piece.words & alone.words) >= 0.7 * len(piece.words) for piece in pieces), length


def test_whatever_is_put_before_it_one_end_is_mostly_the_request() -> None:
    prompt = "Prove that there are infinitely many primes, and give the least one above 1000. " * 2
    alone = extract(view({"prompt": prompt}))
    for length in range(10, 700, 60):
        pieces = windows(extract(view({"prompt": ("poem story sea wide " * 40)[:length] + " " + prompt})))
        assert any(len(piece.words & alone.words) >= 0.7 * len(piece.words) for piece in pieces), length


def test_pieces_carry_the_length_of_the_whole() -> None:
    features = extract(view({"prompt": "Tell me about the sea and the wind there. " * 12}))
    pieces = windows(features)
    assert len(pieces) == len(PIECES)
    for piece in pieces:
        assert abs(piece.vector[LENGTH] - features.vector[LENGTH]) < 0.3
    assert windows(extract(view({"prompt": "Tell me."}))) == []


@given(st.text(max_size=300))
@settings(deadline=None)
def test_any_text_has_pieces_with_finite_features(text: str) -> None:
    for piece in windows(extract(view({"prompt": text}))):
        assert all(value == value and abs(value) < 1e6 for value in piece.vector)

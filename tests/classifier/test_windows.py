from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from classifier.conversation import view
from classifier.features import NAMES, extract
from classifier.windows import windows

LENGTH = NAMES.index("log_tokens")
PROMPT = "Prove that there are infinitely many primes, and give the least one above 1000. " * 3


def test_what_is_added_at_one_side_leaves_the_other_as_it_was() -> None:
    first, last = windows(extract(view({"prompt": PROMPT})), (100,))
    for length in range(10, 900, 60):
        added = ("poem story sea wide " * 50)[:length]
        after = windows(extract(view({"prompt": PROMPT + added})), (100,))[0]
        before = windows(extract(view({"prompt": added + " " + PROMPT})), (100,))[1]
        for at, name in enumerate(NAMES):
            if name != "log_tokens":
                assert after.vector[at] == first.vector[at], (name, length)
                assert before.vector[at] == last.vector[at], (name, length)
        assert after.words == first.words
        assert before.words == last.words


def test_pieces_carry_the_length_of_the_whole() -> None:
    features = extract(view({"prompt": "Tell me about the sea and the wind there. " * 12}))
    pieces = windows(features, (100, 300))
    assert len(pieces) == 4
    for piece in pieces:
        assert abs(piece.vector[LENGTH] - features.vector[LENGTH]) < 0.3
    assert windows(features, ()) == []
    assert windows(extract(view({"prompt": "Tell me."})), (100,)) == []


@given(st.text(min_size=41, max_size=300))
@settings(deadline=None)
def test_any_text_has_pieces_with_finite_features(text: str) -> None:
    for piece in windows(extract(view({"prompt": text})), (40, 120)):
        assert all(value == value and abs(value) < 1e6 for value in piece.vector)

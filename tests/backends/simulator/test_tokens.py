from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.simulator import tokens

_TEXT = st.text(alphabet=st.one_of(st.characters(codec="utf-8"), st.sampled_from("abcXYZ 0129  \n你好")))


@given(_TEXT)
def test_pieces_join_to_the_text_and_numbers_decode_to_it(text: str) -> None:
    assert "".join(tokens.pieces(text)) == text
    assert tokens.count(text) == len(tokens.pieces(text)) == len(tokens.encode(text))
    assert tokens.decode(tokens.encode(text)) == text


@given(_TEXT)
def test_each_number_is_one_tokens(text: str) -> None:
    for piece in tokens.pieces(text):
        token = tokens.number(piece)
        assert 0 <= token < tokens.END_TOKEN
        assert tokens.text_of(token) == piece


@given(_TEXT, st.integers(0, 40))
def test_the_tokens_of_an_answer_cut_anywhere_are_those_of_its_text(text: str, kept: int) -> None:
    part = tokens.pieces(text)[:kept]
    assert tokens.pieces("".join(part)) == part


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The quick foxes", ["The", " quick", " foxes"]),
        ("quantization", ["quant", "izati", "on"]),
        ("你好,world", ["你", "好", ",", "world"]),
        ("    return 1024", ["    ", "retur", "n", " 102", "4"]),
        ("😀", ["😀"]),
        ("", []),
    ],
)
def test_pieces(text: str, expected: list[str]) -> None:
    assert tokens.pieces(text) == expected


def test_the_end_token_has_no_text() -> None:
    assert tokens.number("") == tokens.END_TOKEN
    assert tokens.text_of(tokens.END_TOKEN) == ""


@pytest.mark.parametrize("token", [-1, tokens.VOCABULARY_SIZE, 0xD800])
def test_a_number_that_is_no_tokens(token: int) -> None:
    with pytest.raises(tokens.UnknownTokenError):
        tokens.decode([token])
    assert tokens.decode([token, ord("a")], skip_unknown=True) == "a"

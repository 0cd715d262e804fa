"""A small reversible tokenizer: pieces of words, numbers, runs of spaces, and single characters.

A token is, with at most one leading space, 1 to 5 letters (all lower case, all upper case, or capitalised), or 1 to
3 digits; a run of 2 to 16 spaces; or one character of anything else, so a Chinese character is a token. The pieces
of a text joined are the text. Every token has a number from which it can be rebuilt, so there is no vocabulary to
load; the numbers are not those of any real model.
"""

from __future__ import annotations

import re

_PIECE = re.compile(r" {2,16}| ?(?:[a-z]{1,5}|[A-Z][a-z]{1,4}|[A-Z]{1,5}|[0-9]{1,3})|.", re.DOTALL)
_LETTERS = 27**5
_CHARACTERS = 0x110000
_SPACES = _CHARACTERS  # 15 runs of spaces, by their length
_NUMBERS = _SPACES + 15  # space, then the digits behind a leading 1, which keeps their zeros
_WORDS = _NUMBERS + 2 * 2000  # space, case, then the letters in base 27
VOCABULARY_SIZE = _WORDS + 2 * 3 * _LETTERS + 1
"""Number of tokens; the last one ends an answer."""
END_TOKEN = VOCABULARY_SIZE - 1
"""Number of the token that ends an answer; it has no text."""


class UnknownTokenError(ValueError):
    """A number that is no token's."""


def pieces(text: str) -> list[str]:
    """The tokens of `text`, in order; joined they are `text`."""
    return _PIECE.findall(text)


def count(text: str) -> int:
    """How many tokens `text` has."""
    return len(_PIECE.findall(text))


def encode(text: str) -> list[int]:
    """The numbers of the tokens of `text`."""
    return [number(piece) for piece in _PIECE.findall(text)]


def number(piece: str) -> int:
    """The number of one token, given as its text; the empty text is the token that ends an answer."""
    if not piece:
        return END_TOKEN
    body = piece[1:] if piece[0] == " " else piece
    space = len(piece) - len(body)
    if not body:
        return ord(" ")
    if body[0] == " ":
        return _SPACES + len(piece) - 2
    if body.isascii() and body.isdigit():
        return _NUMBERS + 2000 * space + int("1" + body)
    if body.isascii() and body.isalpha():
        case = 0 if body.islower() else 2 if body.isupper() else 1
        value = 0
        for letter in body.lower():
            value = value * 27 + ord(letter) - 96
        return _WORDS + (3 * space + case) * _LETTERS + value
    return ord(body)


def decode(numbers: list[int], *, skip_unknown: bool = False) -> str:
    """The text of tokens given by their numbers. Raises UnknownTokenError, unless those are to be skipped."""
    texts = []
    for token in numbers:
        try:
            texts.append(text_of(token))
        except UnknownTokenError:
            if not skip_unknown:
                raise
    return "".join(texts)


def text_of(token: int) -> str:
    """The text of one token. Raises UnknownTokenError."""
    if token < 0 or token >= VOCABULARY_SIZE or 0xD800 <= token < 0xE000:
        raise UnknownTokenError(f"Token id {token} is out of vocabulary")
    if token == END_TOKEN:
        return ""
    if token < _SPACES:
        return chr(token)
    if token < _NUMBERS:
        return " " * (token - _SPACES + 2)
    if token < _WORDS:
        space, digits = divmod(token - _NUMBERS, 2000)
        return " " * space + str(digits)[1:]
    kind, value = divmod(token - _WORDS, _LETTERS)
    space, case = divmod(kind, 3)
    letters = ""
    while value:
        value, letter = divmod(value, 27)
        letters = chr(letter + 96) + letters
    word = letters.upper() if case == 2 else letters.capitalize() if case == 1 else letters
    return " " * space + word


__all__ = [
    "END_TOKEN",
    "VOCABULARY_SIZE",
    "UnknownTokenError",
    "count",
    "decode",
    "encode",
    "number",
    "pieces",
    "text_of",
]

"""Text from records as it may be shown: no control characters, nothing that cannot be encoded, at a sane length."""

from __future__ import annotations

import re

_ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f" "\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069" "\ud800-\udfff]")
"""Control characters but tab and newline, marks that turn the direction of writing, halves of surrogate pairs."""


def printable(text: str) -> str:
    r"""The text with what would steer a terminal, or could not be written to a file, as its number.

    >>> printable("a\x1b[31mb"), printable("caf\xe9\ud800")
    ('a\\x1b[31mb', 'café\\ud800')
    """
    return _ODD.sub(lambda odd: odd[0].encode("unicode_escape").decode(), text)


def one_line(text: str, most: int = 1000) -> str:
    """The text on one line, cut to a length.

    >>> one_line("a\\n b"), one_line("x" * 30, 10)
    ('a b', 'xxxxxxxxx…')
    """
    return cut(printable(" ".join(text[:4 * most].split())), most)


def cut(text: str, most: int) -> str:
    """The text, or its beginning and an ellipsis where it is longer than that."""
    return text if len(text) <= most else text[:most - 1] + "…"

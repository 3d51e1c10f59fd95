"""Text in the columns of a terminal: how many it takes, cut to so many, a table with its cells below each other."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import accumulate

from reports.safe_text import printable

_ON_ANOTHER = re.compile("[\u1160-\u11ff🏻-🏿]")
"""Vowels and ends of a Korean syllable, and tones of skin: part of the character before."""


def width(text: str) -> int:
    """Columns that a text takes in a terminal: two a wide character, none a mark on the one before.

    >>> width("cars"), width("日本"), width("e\u0301"), width("👩\u200d🔬"), width("👍🏽"), width("❤\ufe0f")
    (4, 4, 1, 2, 2, 2)
    """
    return sum(_widths(text))


def _widths(text: str) -> Iterator[int]:
    """The columns of each character; one that is joined to that before it, as emoji are, takes none of its own."""
    before, last = "", 0
    for character in text:
        mark = unicodedata.category(character) in ("Mn", "Me", "Cf") or _ON_ANOTHER.match(character)
        wide = unicodedata.east_asian_width(character) in "WF"
        if character == "\ufe0f" and last == 1:  # shows the sign before it as an emoji, which is wide
            last = 1
        else:
            last = 0 if mark or before == "\u200d" else 2 if wide else 1
        yield last
        before = character


def fitted(text: str, columns: int) -> str:
    """The text, or its beginning and an ellipsis where it takes more columns of a terminal than that.

    >>> fitted("日本語", 6), fitted("日本語", 5), fitted("日本語", 4)
    ('日本語', '日本…', '日…')
    """
    if width(text) <= columns:
        return text
    ends = accumulate(_widths(text))
    return text[:sum(end < columns for end in ends)] + "…"


def aligned(rows: Sequence[Sequence[str]], left: Sequence[bool]) -> list[list[str]]:
    """The cells of a table for a terminal, each as wide as its column: on its left where that says so.

    >>> aligned([("name", "runs"), ("日本", "12"), ("é", "3")], [True, False])
    [['name', 'runs'], ['日本', '  12'], ['é   ', '   3']]
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(*rows)]
    spaces = [[" " * (widths[i] - width(cell)) for i, cell in enumerate(row)] for row in rows]
    return [[cell + space if on_left else space + cell for cell, space, on_left in zip(row, around, left)]
            for row, around in zip(rows, spaces)]

"""Text from records as it may be shown: no control characters, nothing that cannot be encoded, at a sane length."""

from __future__ import annotations

import re

_ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f" "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069" "\ud800-\udfff]")
"""Control characters but tab and newline, marks that turn the direction of writing, halves of surrogate pairs."""

_SPELT = {"−": "-", "–": "-", "─": "-", "±": "+-", "×": "x", "…": "...", "→": "->", "·": "-",
          "≤": "<=", "│": "|", "é": "e"}
"""Signs that tables in a terminal have, by what stands for them where there is none."""


def printable(text: str) -> str:
    r"""The text with what would steer a terminal, or could not be written to a file, as its number.

    >>> printable("a\x1b[31mb"), printable("caf\xe9\ud800")
    ('a\\x1b[31mb', 'café\\ud800')
    """
    return text if text.isprintable() else _ODD.sub(lambda odd: odd[0].encode("unicode_escape").decode(), text)


def spelt(text: str, encoding: str) -> str:
    r"""The text with what an encoding lacks spelt by what every one has, or as its number.

    >>> spelt("0.5 ± 0.1 − 2…", "latin-1"), spelt("0.5 ± 0.1 τ", "ascii")
    ('0.5 ± 0.1 - 2...', '0.5 +- 0.1 \\u03c4')
    """
    def known(letter: str) -> bytes:
        try:
            return letter.encode(encoding)
        except UnicodeEncodeError:
            return _SPELT.get(letter, letter).encode(encoding, "backslashreplace")

    return b"".join(map(known, text)).decode(encoding)


def one_line(text: str, most: int = 1000) -> str:
    """The text on one line, cut to a length.

    >>> one_line("a\\n b"), one_line("x" * 30, 10)
    ('a b', 'xxxxxxxxx…')
    """
    return cut(printable(" ".join(text[:4 * most].split())), most)


def cut(text: str, most: int) -> str:
    """The text, or its beginning and an ellipsis where it is longer than that."""
    return text if len(text) <= most else text[:most - 1] + "…"


def without_folders(command: str) -> str:
    """A command with its files by their names alone: nobody need know where they lay.

    >>> without_folders("oodml run --study /home/me/mine.toml --plugin=/a/b.py --dataset folder:/c/d --set lr=1e-4")
    'oodml run --study mine.toml --plugin=b.py --dataset folder:d --set lr=1e-4'
    >>> without_folders("oodml splits build --dataset 'folder:/home/me/my stuff/red birds' --rungs 5")
    "oodml splits build --dataset 'folder:red birds' --rungs 5"
    """
    command = re.sub("'[^']*'", lambda word: re.sub(r"(?<=['=:,])/(?:[^/',]+/)*(?=[^/'])", "", word[0]), command)
    return re.sub(r"(?<=[\s=:])/(?:[^\s/]+/)*(?=[^\s/])", "", command)

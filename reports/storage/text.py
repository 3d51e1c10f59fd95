"""Text from records as it may be shown: no control characters, nothing that cannot be encoded, at a sane length."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f" "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069" "\ud800-\udfff]")
"""Control characters but tab and newline, marks that turn the direction of writing, halves of surrogate pairs."""


def printable(text: str) -> str:
    r"""The text with what would steer a terminal, or could not be written to a file, as its number.

    >>> printable("a\x1b[31mb"), printable("caf\xe9\ud800")
    ('a\\x1b[31mb', 'café\\ud800')
    """
    return text if text.isprintable() else _ODD.sub(lambda odd: odd[0].encode("unicode_escape").decode(), text)


def one_line(text: str, most: int = 1000) -> str:
    """The text on one line, cut to a length.

    >>> one_line("a\\n b"), one_line("x" * 30, 10)
    ('a b', 'xxxxxxxxx…')
    """
    return cut(printable(" ".join(text[:4 * most].split())), most)


_SUSPECT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])|\xed[\xa0-\xbf]|\x00")
_UNFIT = re.compile("[\x00\ud800-\udfff]")


_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters but tab and newline."""
_MARKS, _ESCAPES = (b"\x7f", b"\xc2", b"\0"), (b"\\u00", b"\\b", b"\\f", b"\\r")
"""One of these stands in every JSON text with a control character: as UTF-8 or in UTF-16, or as an escape."""
_ESCAPED = re.compile(rb"(?<!\\)(?:\\\\)*\\(?:[bfr]|u00)")
"""An escape of them, whose backslash is not itself escaped, as in that of a LaTeX command."""


def may_hold_controls(raw: bytes) -> bool:
    r"""Whether a text in this JSON may hold control characters; looking for them in each takes a hundred times as long.

    >>> may_hold_controls(b'{"a": "b\\nc"}'), may_hold_controls(b'{"a": "\\u001b[31m"}')
    (False, True)
    """
    escaped = any(mark in raw for mark in _ESCAPES) and _ESCAPED.search(raw)
    return bool(escaped) or any(mark in raw for mark in _MARKS)


def holds_controls(content: Any) -> bool:
    r"""Whether a text of a JSON value, or a key in it, holds a control character other than tab and newline.

    >>> holds_controls({"a": ["b\n", {"\x1b[31m": 1}]}), holds_controls({"a": "b\n"})
    (True, False)
    """
    texts: list[str] = []
    left = [content]
    while left:
        part = left.pop()
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            left += part
            left += part.values()
        elif isinstance(part, (list, tuple)):
            left += part
    return bool(_CONTROL.search("".join(texts)))


def from_json(raw: bytes) -> Any:
    """The content of a JSON file; a ValueError where it is nested too deep or a text in it could not be written again.

    >>> from_json(b'{"a": "\\\\ud800"}')
    Traceback (most recent call last):
    ValueError: a text holds half a surrogate pair or the character 0
    """
    try:
        content = json.loads(raw, parse_constant=_no_number)
        if _SUSPECT.search(raw) and any(_UNFIT.search(text) for text in _texts(content)):
            raise ValueError("a text holds half a surrogate pair or the character 0")
        return content
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number in JSON")


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for part in (*content, *content.values()) if isinstance(content, dict) else \
            content if isinstance(content, list) else ():
        yield from _texts(part)


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

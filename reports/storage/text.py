"""Text from records as it may be shown: no control characters, nothing that cannot be encoded, at a sane length."""

from __future__ import annotations

import difflib
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
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


def duration(seconds: float) -> str:
    """Seconds in the unit a reader would choose.

    >>> duration(41.3), duration(190), duration(5400), duration(400_000)
    ('41 s', '3.2 min', '1.5 h', '4.6 d')
    """
    for size, unit in ((86400 * 2, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / (86400 if unit == 'd' else size):.1f} {unit}"
    return f"{seconds:.0f} s"


def minus(text: str) -> str:
    """A number with the sign that is a minus, where a hyphen stood.

    >>> minus("-0.5"), minus("+2"), minus("1e-05")
    ('−0.5', '+2', '1e−05')
    """
    return text.replace("-", "−")


def decimal(value: float, digits: int, signed: bool = False) -> str:
    """A number as tables and pages show it; one that rounds to zero is zero and has no sign.

    >>> decimal(-1.26, 1), decimal(-0.04, 1), decimal(0.04, 1, signed=True), decimal(2, 1, signed=True)
    ('−1.3', '0.0', '0.0', '+2.0')
    """
    rounded = round(value, digits) + 0.0  # -0.0 + 0.0 is 0.0
    return minus(f"{rounded:{'+' if signed and rounded else ''},.{digits}f}")


def probability(p: float) -> str:
    """A p-value as papers print it, with how it compares.

    >>> probability(0.0625), probability(7e-22)
    ('= 0.062', '< 0.0001')
    """
    return "< 0.0001" if p < 1e-4 else f"= {p:.2g}"


def byte_size(count: float) -> str:
    """Bytes in the unit a reader would choose, of a thousand each.

    >>> [byte_size(count) for count in (0, 1, 912, 21_540, 999_999, 3_400_000, 139e9, 2.5e12)]
    ['0 bytes', '1 byte', '912 bytes', '21.5 KB', '1 MB', '3.4 MB', '139 GB', '2.5 TB']
    """
    for unit in ("bytes", "KB", "MB", "GB"):
        if float(f"{count:.3g}") < 1000:
            return counted(round(count), "byte") if unit == "bytes" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"


def counted(count: int, one: str, several: str = "") -> str:
    """So many of something; `several` where the plural is more than another ending.

    >>> counted(1, "image"), counted(1200, "image"), counted(0, "class"), counted(2, "gallery"), counted(3, "day")
    ('1 image', '1,200 images', '0 classes', '2 galleries', '3 days')
    >>> counted(1, "file has", "files have"), counted(2, "file has", "files have")
    ('1 file has', '2 files have')
    """
    if count == 1:
        return f"1 {one}"
    if not several:
        several = (f"{one[:-1]}ies" if re.search("[^aeiou]y$", one) else
                   f"{one}es" if re.search("(s|x|ch|sh)$", one) else f"{one}s")
    return f"{count:,} {several}"


def number(value: float) -> str:
    """A setting or a measure: exact where that takes a few digits, else to four of them.

    >>> number(1 / 6), number(1e-5), number(0.125), number(1200000.0), number(3), number(-0.0)
    ('0.1667', '1e-05', '0.125', '1200000', '3', '0')
    """
    exact = f"{value + 0:.7g}"
    return exact if float(exact) == value else f"{value:.4g}"


METRICS = {"recall": "Recall", "map": "mAP", "map@r": "MAP@R", "r-precision": "R-precision", "nmi": "NMI", "f1": "F1"}
"""What papers call them; MAP@R is Musgrave et al.'s."""


def metric_name(metric: str) -> str:
    """A metric as papers write it.

    >>> [metric_name(one) for one in ("recall@1", "map@1000_released", "map@r", "nmi", "accuracy")]
    ['Recall@1', 'mAP@1000, released code', 'MAP@R', 'NMI', 'accuracy']
    """
    name = metric.removesuffix("_released")
    kind, at, k = name.partition("@")
    return (METRICS.get(name) or METRICS.get(kind, kind) + at + k) + (", released code" if name != metric else "")


def near(name: str, options: Iterable[str]) -> str:
    """A hint at the names that were probably meant, ready to stand behind the wrong one.

    >>> near("glyph", ["glyphs", "cub"]), near("margi", ["margin", "margins", "cub"]), near("met", ["frozen"])
    (" (did you mean 'glyphs'?)", " (did you mean 'margin' or 'margins'?)", '')
    """
    def bare(text: str) -> str:
        return re.sub("[-_ ]", "", text.lower())

    alike = {option: difflib.SequenceMatcher(None, bare(name), bare(option)).ratio() for option in options}
    ranked = sorted((option for option in alike if alike[option] >= 0.5), key=lambda option: -alike[option])[:3]
    # others beside the nearest only where they are about as near
    meant = [option for option in ranked if alike[option] >= max(0.7, alike[ranked[0]] - 0.1)] or ranked[:1]
    return f" (did you mean {' or '.join(map(repr, meant))}?)" if meant else ""


def without_folders(command: str) -> str:
    """A command with its files by their names alone: nobody need know where they lay.

    >>> without_folders("oodml run --study /home/me/mine.toml --plugin=/a/b.py --dataset folder:/c/d --set lr=1e-4")
    'oodml run --study mine.toml --plugin=b.py --dataset folder:d --set lr=1e-4'
    >>> without_folders("oodml splits build --dataset 'folder:/home/me/my stuff/red birds' --rungs 5")
    "oodml splits build --dataset 'folder:red birds' --rungs 5"
    """
    command = re.sub("'[^']*'", lambda word: re.sub(r"(?<=['=:,])/(?:[^/',]+/)*(?=[^/'])", "", word[0]), command)
    return re.sub(r"(?<=[\s=:])/(?:[^\s/]+/)*(?=[^\s/])", "", command)

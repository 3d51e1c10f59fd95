"""JSON that others wrote: refused where it could not be written again, and searched for control characters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

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

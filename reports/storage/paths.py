"""Names that become parts of a path, and the one check before a file is written, copied or deleted.

Records, packs, inspections and lists of pages come from elsewhere; a name in one of them must not lead out of the
folder that it is put into.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from reports import ReportError
from reports.storage.text import one_line

LONGEST = 200
"""Bytes of a name: file systems take 255, and endings are added."""


def is_plain(name: Any) -> bool:
    """Whether a name may be one part of a path on any file system.

    >>> is_plain("mixup@margin"), is_plain("../x"), is_plain("/etc"), is_plain(".."), is_plain("a\\\\b"), is_plain("")
    (True, False, False, False, False, False)
    """
    if not isinstance(name, str) or not name or name[0] in ".-~ " or name[-1] in ". ":
        return False
    if any(character in "/\\" or not character.isprintable() for character in name):
        return False
    return len(name.encode(errors="replace")) <= LONGEST


def plain(name: Any, what: str = "name") -> str:
    """The name itself; a ReportError where it may not be one part of a path.

    >>> plain("../../x", "dataset")
    Traceback (most recent call last):
    reports.ReportError: the dataset '../../x' cannot be the name of a file: no slashes, no control characters, no dot \
at its beginning, at most 200 bytes
    """
    if not is_plain(name):
        raise ReportError(f"the {what} {one_line(repr(name), 120)} cannot be the name of a file: no slashes, no "
                          f"control characters, no dot at its beginning, at most {LONGEST} bytes")
    return str(name)


def below(folder: Path | str, *parts: str) -> Path:
    """The path of some parts below a folder, links followed; a ReportError where it would lie outside.

    >>> below("site", "method/margin.html").as_posix()
    'site/method/margin.html'
    """
    path = Path(folder, *parts)
    home, target = os.path.realpath(folder), os.path.realpath(path) if _possible(path) else ""
    if not target.startswith(home.rstrip(os.sep) + os.sep):
        raise ReportError(f"{one_line(repr('/'.join(map(str, parts))), 200)} does not lie below {folder}: nothing is "
                          "read, written or deleted there")
    return path


def _possible(path: Path) -> bool:
    return "\0" not in str(path) and str(path) == str(path).encode(errors="replace").decode()


def is_own_file(folder: Path | str, *parts: str) -> bool:
    """Whether a plain file (no pipe, no device) lies below a folder, not a link that leads out of it."""
    try:
        return stat.S_ISREG(os.stat(below(folder, *parts)).st_mode)
    except (OSError, ReportError):
        return False

"""Names that become parts of a path, and the one check before a file is written, copied or deleted.

Records, packs, inspections and lists of pages come from elsewhere; a name in one of them must not lead out of the
folder that it is put into.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from pathlib import Path
from typing import Any

from reports import ReportError
from reports.storage.text import one_line

LONGEST = 200
"""Bytes of a name: file systems take 255, and endings are added."""
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
"""Names that are devices on Windows, with any ending."""


def is_plain(name: Any) -> bool:
    """Whether a name may be one part of a path on any file system.

    >>> is_plain("mixup@margin"), is_plain("../x"), is_plain("/etc"), is_plain(".."), is_plain("a\\\\b"), is_plain("")
    (True, False, False, False, False, False)
    """
    if not isinstance(name, str) or len(name.encode(errors="replace")) > LONGEST:
        return False
    read = unicodedata.normalize("NFKC", name)  # some systems take a look-alike of a slash or a dot for one
    if not read or read[0] in ".-~ " or read[-1] in ". " or _DEVICE.match(read):
        return False
    return not any(character in '/\\:*?"<>|' or not character.isprintable() for character in name + read)


def plain(name: Any, what: str = "name") -> str:
    """The name itself; a ReportError where it may not be one part of a path.

    >>> plain("../../x", "dataset")
    Traceback (most recent call last):
    reports.ReportError: the dataset '../../x' cannot be the name of a file: no slashes, none of : * ? " < > |, no \
control characters, no dot at its beginning, no device, at most 200 bytes
    """
    if not is_plain(name):
        raise ReportError(f"the {what} {one_line(repr(name), 120)} cannot be the name of a file: no slashes, none "
                          'of : * ? " < > |, no control characters, no dot at its beginning, no device, at most '
                          f"{LONGEST} bytes")
    return str(name)


def of_method(name: str) -> str:
    """The name of a method as part of a path."""
    return name.replace(":", "@")


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

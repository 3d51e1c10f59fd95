"""Names that become parts of a path, and the one check before a file is written, copied or deleted.

Records, packs, inspections and lists of pages come from elsewhere; a name in one of them must not lead out of the
folder that it is put into.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import unicodedata
from pathlib import Path
from typing import Any

from reports import ReportError
from reports.safe_text import one_line

LONGEST = 200
"""Bytes of a name: file systems take 255, and endings are added."""
LARGEST = 1 << 28
"""Bytes of a file that is read at once: more than ten thousand packed records, less than fills the memory."""
_OF_FILE = (None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO)
"""Numbers of the system's errors that say what a file is, not what is around it; None: an error of a library."""
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
"""Names that are devices on Windows, with any ending."""
_RESERVED = frozenset('/\\:*?"<>|')


def out_of_reach(error: BaseException) -> bool:
    """Whether an error is of rights, of a disk that does not answer or the like: the file itself may be sound.

    >>> out_of_reach(PermissionError(13, "Permission denied")), out_of_reach(FileNotFoundError(2, "No such file"))
    (True, False)
    """
    return isinstance(error, OSError) and error.errno not in _OF_FILE


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
    return (name + read).isprintable() and _RESERVED.isdisjoint(name + read)


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


def short(name: str, longest: int = LONGEST) -> str:
    """A name that somebody gave, brought to the length that a file may have; two long ones stay two.

    >>> short("birds"), len(short("b" * 300)), short("b" * 300) == short("b" * 301), len(short("鳥" * 90).encode())
    ('birds', 200, False, 198)
    """
    if len(name.encode(errors="replace")) <= longest:
        return name
    mark = "-" + hashlib.sha256(name.encode(errors="replace")).hexdigest()[:8]
    return name.encode(errors="replace")[:longest - len(mark)].decode(errors="ignore") + mark


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


def write(path: Path, content: str | bytes, flush: bool = False) -> Path:
    """Puts a file there whole or not at all: what it replaces, perhaps the only copy, stays until all is written.

    With `flush` it also survives a power cut.
    """
    temporary = path.with_name(f".oodml.{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if flush:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def plain_file(path: Path) -> Path:
    """The path of a file that a user names; an OSError where it is no plain file (a pipe would be waited for, a device
    read without end) or too large to be read.
    """
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise OSError("no plain file")
    if found.st_size > LARGEST:
        raise OSError(f"{found.st_size:,} bytes, more than the {LARGEST:,} that are read")
    return path


def content(path: Path | str) -> bytes:
    """The bytes of a plain file; an OSError also where it is a link out of its folder: what comes from elsewhere must
    not show a file of this machine.
    """
    plain_file(Path(path))
    if os.path.islink(path) and not is_own_file(*os.path.split(path)):
        raise OSError("a link out of its folder; put the file itself there")
    with open(path, "rb") as file:
        return file.read(os.fstat(file.fileno()).st_size + 1)  # it makes room for as much as it is asked for


def own_content(folder: Path | str, path: Path | str) -> bytes:
    """The same of a file that lies below a folder; an OSError where a link leads out of it."""
    if not is_own_file(folder, os.path.relpath(path, folder)):
        raise OSError(f"no plain file of at most {LARGEST:,} bytes below {folder}")
    return content(path)


def is_own_file(folder: Path | str, *parts: str) -> bool:
    """Whether a plain file (no pipe, no device) of a sane size lies below a folder, not a link that leads out of it."""
    try:
        found = os.stat(below(folder, *parts))
        return stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST
    except (OSError, ReportError):
        return False

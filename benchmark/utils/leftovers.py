"""What a killed command leaves half-written beside what it made: such files and folders bear the number of its process.

Everything that is written whole or not at all is first called `.oodml.NAME.PID` (or `.oodml.NAME.PID-THREAD`), and
renamed: what is not so called was not made here.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

AGE = 3600.0
"""Seconds for which nothing was written to it: a process of another machine may share the folder."""
_NAMES = re.compile(r"\.oodml\.(?P<name>.+)\.(?P<pid>\d+)(?:-\d+)?")


def unfinished(path: Path) -> Path:
    """What `path` is called while it is being written; two threads may write the same file at the same moment."""
    return path.with_name(f".oodml.{path.name}.{os.getpid()}-{threading.get_ident()}")


def within(folder: Path, name: str = "") -> Iterator[tuple[Path, int]]:
    """What in a folder is so called, of the file `name` alone if that is given, with the process that wrote it."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if (made := _NAMES.fullmatch(path.name)) and name in ("", made["name"]):
            yield path, int(made["pid"])


def remove(folders: Iterable[Path], name: str = "") -> list[Path]:
    """Removes what killed commands left in these folders, of the file `name` alone if that is given; what was removed.

    What a living process of this machine writes, and what is younger than an hour, stays.
    """
    removed = []
    for path, pid in (left for folder in folders for left in within(folder, name)):
        with suppress(OSError):  # another command may have removed it, or the folder cannot be written
            if not _alive(pid) and time.time() - path.lstat().st_mtime > AGE:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
                removed.append(path)
    return removed


def _alive(pid: int) -> bool:
    try:
        with suppress(PermissionError):  # it is there, of another user
            os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    return True

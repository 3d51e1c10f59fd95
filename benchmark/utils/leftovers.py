"""What a killed command leaves half-written beside what it made: such files and folders bear the number of its process.

Everything that is written whole or not at all is first called `.oodml.NAME.PID` (or `.oodml.NAME.PID-THREAD`), and
renamed: what is not so called was not made here.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

AGE = 3600.0
"""Seconds for which nothing was written to it: a process of another machine may share the folder."""
_NAMES = re.compile(r"\.oodml\.(?P<name>.+)\.(?P<pid>\d+)(?:-\d+)?")


def remove(folders: Iterable[Path], name: str = "") -> list[Path]:
    """Removes what killed commands left in these folders, of the file `name` alone if that is given; what was removed.

    What a living process of this machine writes, and what is younger than an hour, stays.
    """
    removed = []
    for path in (path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())):
        made = _NAMES.fullmatch(path.name)
        if not made or (name and made["name"] != name) or _alive(int(made["pid"])):
            continue
        with suppress(OSError):  # another command may have removed it, or the folder cannot be written
            if time.time() - path.lstat().st_mtime > AGE:
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

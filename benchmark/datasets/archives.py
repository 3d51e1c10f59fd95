"""Archives in the data folder that nobody has unpacked yet."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

ENDINGS = (".tgz", ".tar.gz", ".tar", ".zip")


def of_folder(data: Path, wanted: Sequence[str]) -> Path | None:
    """An archive in the data folder that bears the name of a dataset's folder, in lower case."""
    files = sorted(data.iterdir()) if data.is_dir() else []
    return next((path for path in files for ending in ENDINGS
                 if path.name.lower().endswith(ending) and path.name.lower().removesuffix(ending) in wanted), None)


def unpacking(archive: Path) -> str:
    """The command that unpacks an archive where it lies.

    >>> unpacking(Path("data/my birds.zip"))
    "unzip 'data/my birds.zip' -d data"
    """
    where, path = shlex.quote(str(archive.parent)), shlex.quote(str(archive))
    return f"unzip {path} -d {where}" if archive.name.lower().endswith(".zip") else f"tar xf {path} -C {where}"

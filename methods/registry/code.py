"""The source of a method, and its hash: by it a run knows whether the code that made it is still the same."""

from __future__ import annotations

import hashlib
import multiprocessing
import sys
import warnings
from functools import cache
from pathlib import Path

from methods.registry import GIVEN, get, ours
from methods.registry.sources import FOLDER, LIBRARIES, sources, unfollowed
from methods.settings import MethodError

SHARED = ("__init__.py", "method.py", "settings.py", "registry/*.py")
"""Files that are part of every method, and of none."""


def files_of(name: str) -> dict[Path, str]:
    """The files of one of the suite's own methods, of its base and of what they import here, with hashes of each.

    Empty for a plug-in's method. What all methods share, the register and the base classes, does not count.

    >>> sorted(path.relative_to(FOLDER).as_posix() for path in files_of("margin"))
    ['margin.py', 'parts/__init__.py', 'parts/distances.py', 'parts/miners.py', 'parts/ranked.py']
    """
    shared = dict.fromkeys((path for pattern in SHARED for path in FOLDER.glob(pattern)), "")
    files = dict(shared)
    try:
        entry = get(name)
    except MethodError:
        return {}
    for part in (entry, entry.base) if ours(entry) else ():
        if part is not None and ours(part):
            sources(FOLDER / f"{part.declared.__module__.rpartition('.')[2]}.py", FOLDER.parent, files)
    return {path: content for path, content in files.items() if path not in shared}


def source_hash(name: str) -> str:
    """SHA-256 over `files_of` a method; empty where there are none."""
    files = files_of(name)
    return hashlib.sha256("\n".join(sorted(files.values())).encode()).hexdigest() if files else ""


def _place(module: str, file: Path) -> tuple[Path, Path]:
    """The file of a plug-in, and the folder that its absolute imports begin at: beside it, or beside its package.

    Of one that was given by its path both are where the file itself lies and not a link to it, as `load_plugin` has it.
    """
    given = module.startswith(GIVEN)
    file = file.resolve() if given else file
    return file, file.parents[(0 if given else module.count(".")) + (file.stem == "__init__")]


def code_of(name: str) -> str:
    """SHA-256 of the source of a plug-in's method and of what it imports from beside it; empty for the suite's own.

    What it imports by a name that only running it tells is not in it; a warning says so.

    >>> code_of("margin")
    ''
    """
    entry = get(name)
    files: dict[Path, str] = {}
    for part in (entry, entry.base):
        module = "methods" if part is None or ours(part) else part.declared.__module__
        file = getattr(sys.modules.get(module), "__file__", None)
        if file and module != "methods":
            sources(*_place(module, Path(file)), files, plugin=True)
    for file in files:
        _warn_of_unfollowed(file)
    hashes = sorted(files.values())
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest() if hashes else ""


@cache
def _warn_of_unfollowed(file: Path) -> None:
    """Once for each file of the user's, and not again in every worker of a sweep."""
    theirs = LIBRARIES.isdisjoint(file.parts)
    lines = unfollowed(file) if theirs and multiprocessing.parent_process() is None else []
    if lines:
        warnings.warn(f"{file}, line {', '.join(map(str, lines))}: what is imported there is only known when it runs. "
                      "If it is a file of yours, it is not part of a run's identity: after a change to it, finished "
                      "runs are not done again. Import it by a statement, or write its name out, "
                      '`importlib.import_module("NAME")`', stacklevel=3)

"""Errors that nobody foresaw: one line for the user, the traceback in a file that can be sent along with a report."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from benchmark.utils.errors import is_user_error
from reports.safe_text import one_line

DEBUG = "OODML_DEBUG"
FOLDER = "errors"
"""Of the working folder."""
SHOWN = 300
"""Characters of what an error says of itself."""


def line(error: BaseException, work: Path | None) -> str:
    """What a user is told of an error, after writing its traceback to a file of the working folder.

    Where there is no such folder, or it cannot be written, the file lies among the temporary ones.
    """
    memory = _out_of_memory(error)
    if memory:
        return f"oodml: {memory}"
    name = f"{type(error).__name__}: {one_line(str(error), SHOWN)}" if str(error).strip() else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({'/'.join(Path(frames[-1].filename).parts[-2:])}, line {frames[-1].lineno})" if frames else ""
    file = _written(error, work)
    said = f"{file} has the traceback" if file else "no file could be written for the traceback"
    return (f"oodml: {name}{where}: nobody foresaw this, so it is most likely a bug of oodml; please report it: "
            f"{said}, {DEBUG}=1 prints it")


@contextlib.contextmanager
def of_threads(facts: Mapping[str, Path]) -> Iterator[None]:
    """While it lasts, a thread that ends by an error says so in one line, too; `facts` may have the folder `work`."""
    before = threading.excepthook

    def hook(thrown: threading.ExceptHookArgs) -> None:
        error = thrown.exc_value
        if os.environ.get(DEBUG) or error is None:
            before(thrown)
        else:
            print(f"oodml: {error}" if is_user_error(error) else line(error, facts.get("work")), file=sys.stderr)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


def _out_of_memory(error: BaseException) -> str:
    """What to do where memory ran out, which is no bug; '' for other errors."""
    if type(error).__name__ == "OutOfMemoryError":  # torch's, which need not be imported here
        return "the GPU ran out of memory: end what else runs on it, or give --device cpu where the command has it"
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return "main memory ran out: end what else runs here, or give fewer --jobs where the command has them"
    return ""


def _written(error: BaseException, work: Path | None) -> Path | None:
    from benchmark.utils import provenance

    facts = {key: value for key, value in provenance.facts().items() if key != "host"}
    text = "\n".join([*(f"{key}: {value}" for key, value in facts.items()), "",
                      *traceback.format_exception(type(error), error, error.__traceback__)])
    name = f"{datetime.now():%Y-%m-%dT%H%M%S}-{os.getpid()}.txt"
    for folder in ([work / FOLDER] if work is not None and work.is_dir() else []) + [Path(tempfile.gettempdir())]:
        path = folder / (name if folder.name == FOLDER else f"oodml-error-{name}")
        with contextlib.suppress(OSError):
            folder.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
            return path
    return None

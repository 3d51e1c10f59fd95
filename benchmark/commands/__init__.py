"""The commands of `oodml`: one file each, holding a click command named `command`.

A command file imports nothing heavy at its top, so that `oodml --help` answers at once.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as lines of aligned cells; on a terminal each is cut to its width, elsewhere they are whole.

    >>> list(columns([("name", "what it is"), ("margin", "A loss.")]))
    ['name    what it is', 'margin  A loss.']
    """
    widths = [max(map(len, column)) for column in zip(*rows)]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
        yield line if len(line) <= room else line[:room - 1] + "…"

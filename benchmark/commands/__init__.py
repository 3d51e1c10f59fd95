"""The commands of `oodml`: one file each, holding a click command named `command`.

A command file imports nothing heavy at its top, so that `oodml --help` answers at once.
"""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click


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


def columns_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--columns` to a command, which then gets the names of its datasets with the columns in them.

    To stand next to the function, as it looks at what the other options and arguments give.
    """
    @click.option("--columns", metavar="LIST", help="Columns of parquet:PATH and wds:PATH, such as "
                                                    "image=photo,label=species [default: found by their kind].")
    @functools.wraps(function)
    def with_them(*words: Any, columns: str | None = None, **options: Any) -> Any:
        if columns:
            from benchmark.datasets.shards import with_columns

            for key in {"name", "dataset", "names", "datasets"} & options.keys():
                value = options[key]
                options[key] = (tuple(with_columns(one, columns) for one in value) if isinstance(value, tuple) else
                                value and with_columns(value, columns))
        return function(*words, **options)

    return with_them

"""The commands of `oodml`: one file each, holding a click command named `command`.

A command file imports nothing heavy at its top, so that `oodml --help` answers at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click


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

"""The commands of `oodml`: one file each, holding a click command named `command`.

A command file imports nothing heavy at its top, so that `oodml --help` answers at once.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from benchmark.utils.errors import near
from benchmark.utils.workspace import Workspace


class Group(click.Group):
    """Commands under one word; what follows it and is none of them gets a hint at what was probably meant.

    `names` tells, once it is needed, what its command `show` knows by name, and `lister` the command that lists these.
    """

    def __init__(self, *words: Any, names: Callable[[], Iterable[str]] | None = None, lister: str = "",
                 **options: Any) -> None:
        super().__init__(*words, **options)
        self.names, self.lister = names, lister

    def resolve_command(self, ctx: click.Context,
                        args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if not word.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, word) is None:
            ctx.fail(f"there is no command '{word}'{self._hint(ctx, word)}")
        return super().resolve_command(ctx, args)

    def _hint(self, context: click.Context, word: str) -> str:
        if self.names is None:
            return near(word, self.list_commands(context))
        known, show = list(self.names()), f"{context.command_path} show"
        if word in known:
            return f" (did you mean `{show} {word}`?); `{self.lister}` lists all"
        return f"{near(word, [*self.list_commands(context), *known])}; `{show} NAME` shows one by its name, " \
               f"`{self.lister}` lists all"


def listed(text: str) -> list[str]:
    """The datasets of a list; the colon of `union:a,b` begins a list of its own, and a path may have commas in it.

    >>> listed("cub, cars"), listed("union:cub,folder:a"), listed("cub,folder:a,b, csv:c")
    (['cub', 'cars'], ['union:cub,folder:a'], ['cub', 'folder:a,b', 'csv:c'])
    """
    parts = [text] if text.startswith("union:") else re.split(r",\s*(?=(?:folder|csv|parquet|wds|union):)", text)
    names = (name for part in parts for name in ([part] if ":" in part else map(str.strip, part.split(","))))
    return [name for name in names if name]


def own_names(text: str | None, workspace: Workspace) -> list[str] | None:
    """The datasets of a list by the names that their runs have, `mine` for folder:PATH/mine; None for no list."""
    from benchmark import datasets

    if not text:
        return None
    return [datasets.load(name, workspace.data).name if ":" in name else name for name in listed(text)]


device_option = click.option("--device", help="cpu, cuda or cuda:N [default: the GPU where there is one].")
plugin_option = click.option("--plugin", "plugins", multiple=True, metavar="FILE",
                             help="A Python file that registers methods; it is run: load only what you trust. May be "
                                  "repeated.")
weights_option = click.option("--weights", "weights_file", help="Weights of the backbone: safetensors, a torch state "
                              "dict, a finished run's folder, or `scratch` for random ones.")
records_option = click.option("--records", "folders", multiple=True, type=click.Path(path_type=Path),
                              help="Folder of run records, loose or packed; may be given several times [default: "
                                   "WORK/runs].")
verbose_option = click.option("--verbose", is_flag=True, help="List finished runs of code that changed since method by "
                              "method, where they are many.")
ladders_option = click.option("--ladder", "ladders", multiple=True, metavar="NAME@VERSION",
                              help="Runs on this pinned ladder of its dataset [default: that of the newest run]. May "
                                   "be repeated.")


def published_option(default: str) -> Callable[..., Any]:
    """Adds `--published`, which says what a command does with rows from papers."""
    return click.option("--published", type=click.Choice(["shown", "ranked", "hidden"]), default=default,
                        show_default=True, help="Rows from papers on the boards of the same datasets: shown without a "
                                                "rank, ranked, or left out.")


def check_names(chosen: str, dataset: str, plugins: tuple[str, ...]) -> None:
    """A UserError where a method, of the suite or of plug-ins, or the dataset is not known.

    So it is told before torch is imported or a ladder asked for.
    """
    import methods
    from benchmark import datasets

    for plugin in plugins:
        methods.load_plugin(plugin)
    methods.select(chosen)
    datasets.get(dataset)


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


def workspace_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--work` and `--data` to a click command, which gets them as one `workspace`.

    A command that is refused leaves no empty working folder behind.
    """

    @click.option("--work", type=click.Path(file_okay=False), help="Working folder [OODML_WORK, default: work].")
    @click.option("--data", type=click.Path(file_okay=False),
                  help="Folder of datasets [OODML_DATA, default: WORK/data].")
    def wrapped(work: str | None, data: str | None, **arguments: Any) -> Any:
        workspace = Workspace.at(work, data)
        facts = click.get_current_context().obj
        if isinstance(facts, dict):
            facts["work"] = workspace.root
        if isinstance(arguments.get("dataset"), str):
            from benchmark import datasets

            arguments["dataset"] = datasets.source(arguments["dataset"], workspace.splits)
        made = [folder for folder in (workspace.root, *workspace.root.parents) if not os.path.lexists(folder)]
        try:
            return command(workspace=workspace, **arguments)
        except BaseException:
            with contextlib.suppress(OSError):  # the first that was not made, or holds something, ends it
                for folder in made:
                    folder.rmdir()
            raise

    wrapped.__name__ = command.__name__
    wrapped.__doc__ = command.__doc__
    wrapped.__click_params__ = getattr(command, "__click_params__", []) + wrapped.__click_params__  # type: ignore[attr-defined]
    return wrapped

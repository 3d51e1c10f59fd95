"""`oodml records`: finished runs as a small folder that can be committed and carried, and back."""

from __future__ import annotations

from pathlib import Path

import click

from benchmark.commands import Group, own_names, records_option, workspace_options
from benchmark.utils.workspace import Workspace
from reports.wording import byte_size, counted


@click.group(cls=Group)
def command() -> None:
    """Pack the records of finished runs into a small folder, and unpack such a folder into a workspace."""


@command.command()
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@records_option
@click.option("--dataset", "--datasets", "datasets", metavar="LIST", help="Only these, with commas between them.")
@click.option("--study", "studies", multiple=True, metavar="NAME",
              help="A study whose runs these are: the leaderboard then says how far it is. May be repeated.")
@click.option("--galleries", is_flag=True, help="Only add the galleries of `oodml inspect` to what OUT has of the same "
              "cells: for records whose weights are gone, trained again. Their scores stay.")
@workspace_options
def pack(workspace: Workspace, out: Path, folders: tuple[Path, ...], datasets: str | None,
         studies: tuple[str, ...], galleries: bool) -> None:
    """Write the finished runs to OUT/DATASET/METHOD.runs.jsonl, a line a run, their ladders to OUT/splits, and
    what `oodml tune` chose for them to OUT/tune.

    What OUT holds already stays; a run that is there already is replaced. Scores, settings and facts of splits are
    kept to the bit and `oodml report --records OUT` shows them as it shows loose records; weights, logs and outcomes of
    single queries stay behind (their sums by class go along, from which the tests between methods are made).
    """
    from functools import partial

    from benchmark.board import packed
    from reports import packing

    if galleries:
        files, count = packing.add_galleries(folders or (workspace.runs,), out)
        click.echo(f"added {counted(count, 'gallery')} to {', '.join(str(path) for path in files)}")
        return
    written, runs = packed.pack(workspace, out, folders, own_names(datasets, workspace), studies,
                                partial(click.echo, err=True))
    size = sum(path.stat().st_size for path in written)
    click.echo(f"packed {counted(runs, 'run')} in {counted(len(written), 'file')}, {byte_size(size)}, into {out}")


@command.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@workspace_options
def unpack(workspace: Workspace, folder: Path) -> None:
    """Put the packed runs in FOLDER as finished runs into the workspace, so that `oodml run` does not run them again.

    Their ladders go along. A run or a ladder that is there already is kept as it is.
    """
    from functools import partial

    from benchmark.board import packed

    written, there = packed.unpack(folder, workspace.writable(), partial(click.echo, err=True))
    click.echo(f"unpacked {counted(written, 'run')} into {workspace.runs}" + (
        f", {counted(there, 'was', 'were')} there already" if there else ""))

"""`oodml records`: finished runs as a small folder that can be committed and carried, and back."""

from __future__ import annotations

from pathlib import Path

import click

from benchmark.workspace import Workspace, workspace_options


@click.group()
def command() -> None:
    """Pack the records of finished runs into a small folder, and unpack such a folder into a workspace."""


@command.command()
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@click.option("--records", "folders", multiple=True, type=click.Path(path_type=Path),
              help="Folder of run records; may be given several times [default: WORK/runs].")
@click.option("--datasets", help="Only these datasets, separated by commas.")
@workspace_options
def pack(workspace: Workspace, out: Path, folders: tuple[Path, ...], datasets: str | None) -> None:
    """Write the finished runs to OUT/DATASET/METHOD.runs.jsonl, a line a run.

    What OUT holds already stays; a run that is there already is replaced. Scores, settings and facts of splits are
    kept to the bit and `oodml report --records OUT` shows them as it shows loose records; weights, logs and outcomes of
    single queries stay behind (their sums by class go along, from which the tests between methods are made).
    """
    from reports import collection

    written, runs = collection.pack(folders or (workspace.runs,), out, datasets.split(",") if datasets else None)
    size = sum(path.stat().st_size for path in written)
    click.echo(f"packed {runs} runs in {len(written)} files, {size / 1e6:.2f} MB, into {out}")


@command.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@workspace_options
def unpack(workspace: Workspace, folder: Path) -> None:
    """Put the packed runs in FOLDER as finished runs into the workspace, so that `oodml run` does not run them again.

    A run that is there already is kept as it is.
    """
    from reports import collection

    written, there = collection.unpack(folder, workspace.writable().runs)
    click.echo(f"unpacked {written} runs into {workspace.runs}" + (f", {there} were there already" if there else ""))

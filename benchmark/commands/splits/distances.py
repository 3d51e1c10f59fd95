"""`oodml splits measure`, `cross` and `compare`: distances with other networks and between datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from benchmark.commands import columns_option, device_option, listed, workspace_options
from benchmark.commands.splits.options import dataset_argument, feature_options, ladder_options, out_option
from benchmark.utils.errors import UserError
from benchmark.utils.terminal import columns
from benchmark.utils.workspace import Workspace


@click.command()
@dataset_argument()
@click.option("--against", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="A manifest of the same dataset: also the overlap of rungs and the order of moves.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Also write the ladder with these distances, a manifest beside the one in WORK/splits.")
@feature_options
@workspace_options
@columns_option
def measure(workspace: Workspace, dataset: str, against: Path | None, out: Path | None, **options: Any) -> None:
    """The distances of a ladder, of a released one above all, with this copy of the dataset and another network."""
    from benchmark import ladders
    from benchmark.ladders import distances
    from splits import manifest
    from splits.compare import overlap

    ladder = ladders.load(workspace, dataset)
    other = manifest.load(against) if against else None
    if out and out.exists():
        raise UserError(f"{out} is there already; give --out another name, or remove it")
    found = distances.measured(ladder, dataset, workspace.writable(), **options)
    click.echo(ladders.table(found))
    if out:
        manifest.save(found, out)
        click.echo(f"wrote {out}")
    if other:
        alike = overlap(ladder, other)
        click.echo(f"\noverlap of the classes of each rung (rows) with the rungs of {against} (Jaccard):")
        for line in columns([(str(split.id), *(f"{value:.2f}" for value in row))
                             for split, row in zip(ladder.splits, alike.rungs)], left=0):
            click.echo(line)
        click.echo(f"rank correlation of when classes change sides: {alike.moves:.2f}")


@click.command()
@click.option("--dataset", "--datasets", "names", required=True, metavar="LIST",
              help="Names, with commas between them.")
@feature_options
@workspace_options
def cross(workspace: Workspace, names: str, **options: Any) -> None:
    """Distance of each dataset's train set (rows) to each one's test set (columns)."""
    from benchmark import datasets
    from benchmark.ladders import distances

    found = [datasets.source(name, workspace.splits) for name in listed(names)]
    table = distances.cross(found, workspace.writable(), **options)
    rows = [("train \\ test", *table.names)]
    rows += [(name, *(f"{value:.2f}" for value in row)) for name, row in zip(table.names, table.matrix)]
    for line in columns(rows, left=0):
        click.echo(line)


@click.command()
@dataset_argument()
@click.option("--backbones", required=True, metavar="LIST", help="Names, separated by commas.")
@out_option
@device_option
@ladder_options
@workspace_options
@columns_option
def compare(workspace: Workspace, dataset: str, backbones: str, out: Path | None, **options: Any) -> None:
    """Does the ladder depend on the backbone? Distances over iterations, order of moves and overlap of splits."""
    from benchmark import datasets
    from benchmark.ladders import distances, figures

    compared = distances.compare_backbones(dataset, backbones.split(","), workspace.writable(), **options)
    click.echo(figures.comparison_text(compared))
    name = datasets.load(dataset, workspace.data).name
    click.echo(f"wrote {figures.comparison(compared, name, out or workspace.splits)}")

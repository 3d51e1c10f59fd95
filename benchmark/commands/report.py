"""`oodml report`: from records to the ranking in the terminal and the leaderboard as pages."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from benchmark.workspace import Workspace, workspace_options

if TYPE_CHECKING:
    from reports.results import Results


@click.command(name="report")
@click.option("--records", "folders", multiple=True, type=click.Path(path_type=Path),
              help="Folder of run records, loose or packed; may be given several times [default: WORK/runs].")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False),
              help="Where the pages go [default: WORK/leaderboard].")
@click.option("--datasets", help="Only these datasets, separated by commas; the mean is over them.")
@click.option("--metric", default="recall@1", show_default=True, help="The metric of the ranking in the terminal.")
@click.option("--published", type=click.Choice(["shown", "ranked", "hidden"]), default="shown", show_default=True,
              help="Rows from papers on the boards of the same datasets: shown without a rank, ranked, or left out.")
@workspace_options
def command(workspace: Workspace, folders: tuple[Path, ...], out: Path | None, datasets: str | None,
            metric: str, published: str) -> None:
    """Rank the finished runs and write the leaderboard as static pages."""
    from reports import coverage, records, site, summary
    from reports.results import Results

    frame, lost = records.scan_checked(folders or (workspace.runs,), datasets.split(",") if datasets else None)
    results = Results(frame, with_published=published != "hidden", rank_published=published == "ranked")
    studies = coverage.read(folders or (workspace.root,))
    click.echo(summary.terminal(results, lost, metric, studies))
    with TemporaryDirectory() as figures:
        _figures(results, folders, workspace, Path(figures))
        index = site.build(results, lost, out or workspace.leaderboard, Path(figures), studies)
    click.echo(f"\nLeaderboard: {index.resolve()}")


def _figures(results: Results, folders: tuple[Path, ...], workspace: Workspace, out: Path) -> None:
    """Puts the figures of the ladders that the runs were made on into a folder: those that are there, or drawn now."""
    from benchmark import split_figures
    from reports.drawing import drawing
    from splits import manifest

    packed = [path for folder in folders for path in (folder / "splits", *sorted(folder.glob("*/splits")))]
    homes = packed or [workspace.splits]
    for dataset in results.datasets:
        hashes = set(results.runs.loc[results.runs["dataset"] == dataset, "split_hash"])
        for home in homes:
            path = home / f"{dataset}.json"
            if not path.is_file() or not hashes <= {split.hash for split in manifest.load(path).splits}:
                continue
            with drawing(dataset):  # the same bytes each time
                split_figures.draw(dataset, Workspace.at(home.parent), out, umap=False, seed=0)
            for made in home.glob(f"{dataset}-*"):
                shutil.copyfile(made, out / made.name)
            break

"""`oodml report`: from records to the ranking in the terminal and the leaderboard as pages."""

from __future__ import annotations

from pathlib import Path

import click

from benchmark.workspace import Workspace, workspace_options


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
    from reports import collection, site, summary
    from reports.results import Results

    frame, lost = collection.scan_checked(folders or (workspace.runs,), datasets.split(",") if datasets else None)
    results = Results(frame, with_published=published != "hidden", rank_published=published == "ranked")
    click.echo(summary.terminal(results, lost, metric))
    index = site.build(results, lost, out or workspace.leaderboard, workspace.splits)
    click.echo(f"\nLeaderboard: {index.resolve()}")

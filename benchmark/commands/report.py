"""`oodml report`: from records to the ranking in the terminal and the leaderboard as pages."""

from __future__ import annotations

from pathlib import Path

import click

from benchmark.workspace import Workspace, workspace_options


@click.command(name="report")
@click.option("--records", "folders", multiple=True, type=click.Path(path_type=Path),
              help="Folder of run records; may be given several times [default: WORK/runs].")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False),
              help="Where the pages go [default: WORK/leaderboard].")
@click.option("--datasets", help="Only these datasets, separated by commas; the mean is over them.")
@click.option("--metric", default="recall@1", show_default=True, help="The metric of the ranking in the terminal.")
@workspace_options
def command(workspace: Workspace, folders: tuple[Path, ...], out: Path | None, datasets: str | None,
            metric: str) -> None:
    """Rank the finished runs and write the leaderboard as static pages."""
    from reports import records, site, summary

    frame, lost = records.scan_checked(folders or (workspace.runs,), datasets.split(",") if datasets else None)
    click.echo(summary.terminal(frame, lost, metric))
    index = site.build(frame, lost, out or workspace.leaderboard)
    click.echo(f"\nLeaderboard: {index.resolve()}")

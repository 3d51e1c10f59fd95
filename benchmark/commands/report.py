"""`oodml report`: from records to the ranking in the terminal and the leaderboard as pages."""

from __future__ import annotations

import atexit
import gc
import sys
from pathlib import Path

import click

from benchmark.commands import ladders_option, own_names, published_option, records_option, workspace_options
from benchmark.utils.workspace import Workspace
from reports.wording import counted


def _leave_all() -> None:
    """No look through all objects at the end either, where they are given back anyway; torch's compiler needs it."""
    if "triton" not in sys.modules:
        gc.freeze()


@click.command(name="report")
@records_option
@click.option("--out", type=click.Path(path_type=Path, file_okay=False),
              help="Where the pages go [default: WORK/leaderboard].")
@click.option("--dataset", "--datasets", "datasets", metavar="LIST",
              help="Only these, with commas between them; the mean is over them.")
@click.option("--metric", default="recall@1", show_default=True, help="The metric of the ranking in the terminal.")
@published_option("shown")
@ladders_option
@click.option("--level", type=click.Choice(["recomputed", "re-embedded", "run here"]),
              help="Rank only rows of this level or above; the others are shown without a rank.")
@click.option("--paper", type=click.Choice(["oodml", "revisiting", "crt", "uml"]),
              help="Say how far each table and figure of a paper is, and which study fills it.")
@click.option("--url", default="", metavar="URL", help="Where the pages will lie, such as https://me.github.io/board: "
                                                       "previews of shared links take their picture from there.")
@workspace_options
def command(workspace: Workspace, folders: tuple[Path, ...], out: Path | None, datasets: str | None,
            metric: str, published: str, ladders: tuple[str, ...], level: str | None,
            paper: str | None, url: str) -> None:
    """Rank the finished runs and write the leaderboard as static pages."""
    gc.set_threshold(1_000_000)  # tables are made of many objects and few circles: looking took a tenth of the time
    atexit.register(_leave_all)

    from benchmark.board import leaderboard
    from benchmark.config import study
    from reports import terminal
    from reports.analysis import papers
    from reports.html import extras

    board = leaderboard.collect(workspace, folders, own_names(datasets, workspace), published,
                                ladders, level or "")
    if sys.stderr.isatty():  # a thousand runs take half a minute
        click.echo(f"{counted(len(board.results.runs), 'run')} read; writing the pages", err=True)
    lost = extras.with_damaged(board.lost, board.results.runs)
    told = terminal.summary(board.results, lost, metric)
    try:
        index = board.build(out, url).resolve()  # first: who reads the first line alone has the pages, too
    finally:
        click.echo(told)
    if paper:
        items = papers.page(paper, board.results.runs, study.filled_by())
        click.echo("\n" + "\n".join(papers.summary(items)) + f"\n\nPaper: {index.parent / 'paper' / paper}.html")
    click.echo(f"\nLeaderboard: {index}")

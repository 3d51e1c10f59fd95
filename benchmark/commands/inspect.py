"""`oodml inspect`: what a finished run finds, as pages of the leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from benchmark.commands import device_option, plugin_option, workspace_options
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from reports.wording import counted

SLOWEST = "the UMAP of each takes longest; --no-umap leaves it out"


@click.command(name="inspect")
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path, file_okay=False))
@click.option("--queries", type=click.IntRange(1, 50), default=8, show_default=True, help="Rows of each gallery.")
@click.option("--no-umap", is_flag=True, help="Leave the embedding in the plane out (it takes longest).")
@click.option("--only", is_flag=True, help="Not also the same method on the splits of least and greatest distance.")
@click.option("--dataset", metavar="NAME",
              help="Where the images are, such as folder:PATH [default: as they were named for `oodml run`].")
@device_option
@plugin_option
@workspace_options
def command(workspace: Workspace, runs: tuple[Path, ...], queries: int, no_umap: bool, only: bool, dataset: str | None,
            device: str | None, plugins: tuple[str, ...]) -> None:
    """Show what finished RUNS retrieve: galleries of sampled and worst queries, the embedding in the plane.

    RUN is the folder of a run, WORK/runs/DATASET/SPLIT/METHOD/sSEED-HASH; without one, the best, the median and, of
    the same backbone, the frozen network on the nearest and the farthest split of each dataset are looked into, which
    the page Retrieval of the leaderboard shows side by side. PUMA's prompt weights and CRT's maps of prototypes are
    added for these methods. The leaderboard is built again, with a page for each run that was looked into.
    """
    import methods
    from benchmark.board import leaderboard
    from benchmark.runs import status

    for run in runs:
        status.check_finished(run)
    results = None if runs else leaderboard.collect(workspace).results
    for plugin in plugins:
        methods.load_plugin(plugin)
    from benchmark.posthoc.inspect import inspect, inspect_all, typical, unknown  # with torch, which takes seconds

    how: dict[str, Any] = {"queries": queries, "plane": not no_umap, "dataset": dataset, "device": device}
    if runs and not no_umap:
        click.echo(SLOWEST)
    for run in runs:
        for path in inspect(workspace, run, ends=not only, tell=click.echo, **how):
            click.echo(f"looked into {path.parent.parent}")
    if results is not None:
        strange = unknown(results)
        if strange:
            click.echo(f"left out: the runs of {', '.join(strange)}, not known here; --plugin FILE takes the file that "
                       "registers the method")
        chosen = typical(results, {*results.runs["base_method"]} - {*strange})
        if not chosen:
            raise UserError(f"no {'other ' * bool(strange)}finished run in {workspace.runs} kept its weights; run "
                            "again what is to be looked into")
        click.echo(f"{counted(len(chosen), 'run')} to look into{'' if no_umap else '; ' + SLOWEST}")
        inspect_all(workspace, chosen, click.echo, **how)
    index = leaderboard.collect(workspace).build()
    click.echo(f"Pages: {(index.parent / 'inspect').resolve()}")

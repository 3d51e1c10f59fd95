"""`oodml wise`: finished runs between their start and their end."""

from __future__ import annotations

import click

from benchmark.commands import check_names, device_option, plugin_option, workspace_options
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from reports.wording import counted


@click.command()
@click.option("--methods", "chosen", default="all", show_default=True, metavar="LIST",
              help="Methods whose finished runs are interpolated; written as for `oodml run`.")
@click.option("--dataset", required=True, help="Dataset whose finished runs are interpolated.")
@click.option("--splits", default="all", show_default=True, metavar="IDS", help="Rungs, such as 1,3-5, or `default`.")
@click.option("--alphas", default="0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1", show_default=True, metavar="LIST",
              help="0 is the start of a run, 1 its end.")
@device_option
@plugin_option
@workspace_options
def command(workspace: Workspace, chosen: str, dataset: str, splits: str, alphas: str, device: str | None,
            plugins: tuple[str, ...]) -> None:
    """Score weights between the pretrained start of finished runs and their end (WiSE-FT); nothing is trained.

    Scores for every alpha go to `wise.json` beside each record, what is there already is kept, and the page of the
    method shows a curve for each split.
    """
    check_names(chosen, dataset, plugins)
    try:
        values = [float(part) for part in alphas.split(",")]
        if not all(0 <= value <= 1 for value in values):
            raise ValueError
    except ValueError:
        raise UserError(f"--alphas {alphas}: write numbers from 0 to 1, such as 0,0.5,1") from None
    from benchmark.posthoc import finished

    found = finished.matching(workspace.writable(), dataset, chosen, splits)
    from benchmark.posthoc import interpolate  # with torch, which takes seconds

    written = interpolate.run(workspace, found, alphas=values, device=device, tell=click.echo)
    click.echo(f"{counted(len(written), 'run')} interpolated; `oodml report` shows what came of it")

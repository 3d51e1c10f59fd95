"""`oodml status`: the states of the sweeps of a working folder."""

from __future__ import annotations

import sys
import time

import click

from benchmark.commands import own_names, workspace_options
from benchmark.utils.workspace import Workspace


@click.command()
@click.option("--dataset", "--datasets", "datasets", metavar="LIST", help="Only these, with commas between them.")
@click.option("--study", metavar="NAME", help="Only the runs of this study, as sweeps of it were started here.")
@click.option("--watch", is_flag=True, help="Look again every few seconds until nothing runs any more.")
@click.option("--every", type=click.FloatRange(min=0.1), default=10.0, show_default=True,
              help="Seconds between two looks.")
@workspace_options
def command(workspace: Workspace, datasets: str | None, study: str | None, watch: bool, every: float) -> None:
    """Count done, running, failed and missing runs of the sweeps started here, with causes of failures."""
    from benchmark.runs import locks, planned

    names = own_names(datasets, workspace) or ()
    watching = locks.Watch()
    while True:
        runs, changes = planned.survey(workspace, names, study or "")
        if not runs:
            for line in changes:
                click.echo(line)
            if names or study:
                click.echo("no run that counts is of what was asked for: newer sweeps took their place, or no sweep of "
                           "this study is on these datasets")
            else:
                click.echo(f"no sweep was started in {workspace.root} yet; `oodml run` starts one")
            return
        if watch and sys.stdout.isatty():
            click.clear()
        click.echo(planned.table(runs))
        for run in runs:
            if run.state.kind == "running":
                click.echo(f"running {run.spec.label()}: {run.state.text}")
        for line in changes:
            click.echo(line)
        for line in planned.failures(runs):
            click.echo(line)
        # an owner on another machine may be dead: a lock whose heartbeats stand still has no owner
        if not watch or all(run.state.kind != "running" or watching.free(run.folder) is not None for run in runs):
            return
        time.sleep(every)

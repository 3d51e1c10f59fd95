"""`oodml status`: the states of the sweeps of a working folder."""

from __future__ import annotations

import sys
import time

import click
from click.core import ParameterSource

from benchmark.commands import own_names, verbose_option, workspace_options
from benchmark.utils.workspace import Workspace


@click.command()
@click.option("--dataset", "--datasets", "datasets", metavar="LIST", help="Only these, with commas between them.")
@click.option("--study", metavar="NAME", help="Only the runs of this study, as sweeps of it were started here.")
@click.option("--watch", is_flag=True, help="Look again every few seconds until two looks find nothing running.")
@click.option("--every", type=click.FloatRange(min=0.1), default=10.0, show_default=True,
              help="Seconds between two looks of --watch, which it implies.")
@verbose_option
@workspace_options
@click.pass_context
def command(context: click.Context, workspace: Workspace, datasets: str | None, study: str | None,
            watch: bool, every: float, verbose: bool) -> None:
    """Count done, running, failed and missing runs of the sweeps started here, with causes of failures."""
    from benchmark.config.spec import told_apart
    from benchmark.runs import locks, planned

    names = own_names(datasets, workspace) or ()
    watching = locks.Watch()
    watch = watch or context.get_parameter_source("every") is not ParameterSource.DEFAULT
    idle = 0
    while True:
        runs, changes = planned.survey(workspace, names, study or "", verbose)
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
        labels = told_apart(run.spec for run in runs)
        for run in runs:
            if run.state.kind == "running":
                click.echo(f"running {labels[run.spec.identity]}: {run.state.text}")
        for line in changes:
            click.echo(line)
        for line in planned.failures(runs):
            click.echo(line)
        # an owner on another machine may be dead: a lock whose heartbeats stand still has no owner
        held = [run for run in runs if run.state.kind == "running" and watching.free(run.folder) is None]
        # a sweep that is just starting, or is between two runs, holds none for a moment
        idle = 0 if held else idle + 1
        if not watch or idle == 2 or all(run.state.kind not in ("running", "missing") for run in runs):
            return
        time.sleep(every)

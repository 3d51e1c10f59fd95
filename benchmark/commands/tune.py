"""`oodml tune`: as many configurations for each method, chosen on held-out classes of training."""

from __future__ import annotations

from typing import Any

import click

from benchmark.commands import columns_option, workspace_options
from benchmark.commands.run import options_of, study_of, summarise, sweep_options
from benchmark.utils.workspace import Workspace


@click.command()
@sweep_options
@click.option("--trials", type=int, default=20, show_default=True,
              help="Configurations of each method; the first is the default.")
@click.option("--sampler", type=click.Choice(["random", "tpe"]), default="random", show_default=True,
              help="random, or tpe: Optuna's Parzen estimator, a few trials at a time.")
@click.option("--seed", default=0, show_default=True, help="Seed of the configurations that are drawn.")
@click.option("--choose-on", type=click.Choice(["each", "default"]), default="each", show_default=True,
              help="Held-out classes that choose: of each rung, for itself, or of the default split, for all "
                   "rungs, some of which may test on them.")
@click.option("--compare", is_flag=True, help="Run the default configuration on the test ladder as well.")
@click.option("--choose-only", is_flag=True, help="Run nothing on the test ladder.")
@workspace_options
@columns_option
def command(workspace: Workspace, trials: int, sampler: str, seed: int, choose_on: str, compare: bool,
            choose_only: bool, **arguments: Any) -> None:
    """Tune methods on held-out classes of training, the same number of trials each, and run the choices on the ladder.

    `oodml methods show NAME` prints what is searched; what --set fixes is not. --splits and --seeds are those of the
    test. Trials are ordinary runs in WORK/tune: a search that was stopped goes on with the same ones. What was tried
    and chosen goes to WORK/tune/NAME.json, and `oodml report` has a page of it.
    """
    from benchmark.runs import tune
    from benchmark.runs.trials import TuneOptions

    study = study_of(workspace, **arguments)
    result, path = tune.run(study, TuneOptions(trials, seed, sampler, choose_on, compare, choose_only),
                            options_of(workspace.writable(), **arguments))
    click.echo(f"What was tried and chosen: {path}")
    summarise(study, result, workspace, arguments["redo"])

"""`oodml plan`: what a run would do, and what it would cost."""

from __future__ import annotations

from typing import Any

import click

from benchmark.commands import columns_option, verbose_option, workspace_options
from benchmark.commands.run import calibrate_option, show, sweep_options
from benchmark.utils.workspace import Workspace


@click.command()
@sweep_options
@calibrate_option("Measure a few steps of each kind of run.")
@verbose_option
@workspace_options
@columns_option
def command(workspace: Workspace, verbose: bool, **arguments: Any) -> None:
    """Show the runs of a sweep (done, running, failed, missing) and the time, memory and disk that the rest will take.

    Takes the same options as `oodml run`; nothing is trained, unless --calibrate asks for a few steps.
    """
    show(workspace, arguments, verbose)

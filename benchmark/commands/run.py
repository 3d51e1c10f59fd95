"""`oodml run`: trains methods on the rungs of a dataset."""

from __future__ import annotations

from typing import Any

import click

from benchmark.workspace import Workspace, workspace_options


@click.command()
@click.option("--methods", "chosen", required=True, metavar="LIST",
              help="Names, globs, tag:NAME, all; a leading minus takes away. See `oodml methods`.")
@click.option("--dataset", required=True, help="Dataset whose ladder is run. See `oodml datasets`.")
@click.option("--protocol", help="How to train [default: the dataset's own]. See `oodml protocols`.")
@click.option("--splits", metavar="IDS", help="Rungs, such as 1,3-5 [default: all].")
@click.option("--seeds", type=click.IntRange(1), help="Number of seeds [default: the protocol's].")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE",
              help="Change a key of the protocol or, as METHOD.KEY=VALUE, a method's setting. May be repeated.")
@click.option("--backbone", help="Another backbone than the protocol's.")
@click.option("--weights", "weights_file", help="Weights of the backbone (safetensors or a torch state dict).")
@click.option("--batches", help="Another batch sampler than the method's own.")
@click.option("--plugin", "plugins", multiple=True, help="A Python file that registers methods; it is run. May be repeated.")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes (on GPUs: runs a GPU).")
@workspace_options
def command(workspace: Workspace, **arguments: Any) -> None:
    """Train methods on every rung of a dataset's ladder; what is done already is skipped.

    A run that was stopped goes on where it was. Ctrl-C once saves and ends, twice ends at once.
    """
    from benchmark import sweep

    outcome = sweep.run(workspace.writable(), **arguments)
    if outcome.interrupted:
        click.echo("Stopped. The same command goes on from here.")
        raise SystemExit(130)
    if outcome.failed:
        raise SystemExit(1)

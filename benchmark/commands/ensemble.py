"""`oodml ensemble`: dataset-specific models of a union scored as one."""

from __future__ import annotations

import click

from benchmark.commands import check_names, device_option, plugin_option, workspace_options
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace


@click.command()
@click.option("--methods", "chosen", required=True, metavar="LIST",
              help="Methods that have a finished run on every member's default split.")
@click.option("--dataset", required=True, help="The union, such as uml or glyphs-union.")
@click.option("--seeds", type=click.IntRange(1), help="Number of seeds [default: all that were run].")
@device_option
@plugin_option
@workspace_options
def command(workspace: Workspace, chosen: str, dataset: str, seeds: int | None, device: str | None,
            plugins: tuple[str, ...]) -> None:
    """Score models that were trained on each dataset of a union alone: on their own, and their mean over the union.

    The accuracy on a dataset is that of its own model, the unified accuracy that of the ensemble, the mean of all
    models' embeddings. First run the method on the members: `oodml run --methods M --dataset NAME --splits default`
    for each, by the protocol of the union's own runs (--protocol), as else their board is another. The record stands
    among the union's runs as the method ensemble:M, as where a study asks for it.
    """
    from benchmark.posthoc import ensemble

    check_names(chosen, dataset, plugins)
    runs = ensemble.find(workspace.writable(), dataset, chosen, seeds)
    if not ensemble.run(workspace, dataset, runs, device=device, tell=click.echo):
        raise UserError(f"no method of '{chosen}' has finished runs of one kind on the default split of every dataset "
                        f"in {dataset}; `oodml run --methods {chosen} --dataset NAME --splits default` makes them")

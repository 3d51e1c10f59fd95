"""`oodml ensemble`: dataset-specific models of a union scored as one."""

from __future__ import annotations

import click

from benchmark.workspace import Workspace, workspace_options


@click.command()
@click.option("--methods", "chosen", required=True, metavar="LIST",
              help="Methods that have a finished run on every member's default split.")
@click.option("--dataset", required=True, help="The union, such as uml or glyphs-union.")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Number of seeds.")
@click.option("--device", help="cpu, cuda or cuda:N [default: the GPU where there is one].")
@workspace_options
def command(workspace: Workspace, chosen: str, dataset: str, seeds: int, device: str | None) -> None:
    """Score the mean of the embeddings of models that were trained on each dataset of a union alone.

    First run the method on the members: `oodml run --methods M --dataset NAME` for each. The record stands among the
    union's runs as the method specific-M.
    """
    import json

    import methods
    from benchmark import ensemble

    for method in methods.select(chosen):
        for seed in range(seeds):
            path = ensemble.run(workspace.writable(), dataset=dataset, method=method, seed=seed, device=device,
                                tell=click.echo)
            scores = json.loads(path.read_text())["scores"]["last"]
            click.echo(f"{ensemble.NAME.format(method)} seed {seed}: unified recall@1 {scores['recall@1']:.4f}")

"""`oodml fewshot`: adapts finished runs to a few images of each test class."""

from __future__ import annotations

import math

import click

from benchmark.commands import check_names, device_option, plugin_option, workspace_options
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from reports.wording import counted


@click.command()
@click.option("--methods", "chosen", default="all", show_default=True, metavar="LIST",
              help="Methods whose finished runs are adapted; written as for `oodml run`.")
@click.option("--dataset", required=True, help="Dataset whose finished runs are adapted; written as for `oodml run`.")
@click.option("--shots", default="2,5", show_default=True, metavar="LIST", help="Support images of each test class.")
@click.option("--splits", default="all", show_default=True, metavar="IDS", help="Rungs, such as 1,3-5, or `default`.")
@click.option("--episodes", type=click.IntRange(1), default=10, show_default=True,
              help="Draws of support images for each split.")
@click.option("--iterations", type=click.IntRange(1),
              help="Steps of adaptation [default: 1000 for 2 shots, 1500 for more].")
@click.option("--lr", type=float, default=1e-4, show_default=True, help="Learning rate of the last layer.")
@device_option
@plugin_option
@workspace_options
def command(workspace: Workspace, chosen: str, dataset: str, shots: str, splits: str, episodes: int,
            iterations: int | None, lr: float, device: str | None, plugins: tuple[str, ...]) -> None:
    """Teach the last layer of finished runs a few images of each test class, and search the others.

    Support images are those of the episodes that an imported ladder came with (`oodml splits import`), if the dataset
    has their files, else drawn. Zero-shot and few-shot measures of the same queries go to `fewshot.json` beside each
    record; what is there already is kept, also what was adapted otherwise (--episodes, --iterations, --lr).
    """
    check_names(chosen, dataset, plugins)
    counts = dict.fromkeys(part.strip() for part in shots.split(","))
    if not all(part.isdecimal() and int(part) for part in counts):
        raise UserError(f"--shots {shots}: write numbers such as 2,5")
    if not 0 < lr < math.inf:  # which NaN is not either
        raise UserError(f"--lr {lr:g}: write a number above 0, such as 1e-4")
    from benchmark.posthoc import finished

    found = finished.matching(workspace.writable(), dataset, chosen, splits, untrained=True)
    from benchmark.posthoc import fewshot  # with torch, which takes seconds

    adaptation = fewshot.Adaptation(lr=lr, iterations=iterations or 0, episodes=episodes)
    written = fewshot.run(workspace, found, shots=tuple(map(int, counts)), adaptation=adaptation, device=device,
                          tell=click.echo)
    click.echo(f"{counted(len(written), 'run')} adapted; `oodml report` shows what came of it")

"""`oodml evaluate`: scores embeddings that other code made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from benchmark.workspace import Workspace, workspace_options


@click.command()
@click.option("--embeddings", required=True, type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="npz (embeddings, ids), npy or safetensors (with --ids), or parquet.")
@click.option("--ids", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Image paths, one a line, as `oodml splits export` gives them [default: FILE.txt beside FILE.npy].")
@click.option("--dataset", required=True, help="Dataset the images are of. See `oodml datasets`.")
@click.option("--split", required=True, type=int, metavar="ID", help="Rung of its ladder.")
@click.option("--name", help="What to call the method [default: the file's name].")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True,
              help="Seed the embeddings were trained with; tells several submissions of one method apart.")
@click.option("--backbone", default="not stated", help="Backbone to show in reports.")
@click.option("--clusters", "cluster", is_flag=True,
              help="Also NMI and F1 of a k-means clustering (slow on many classes).")
@click.option("--device", help="Where to search [default: cuda if there is one].")
@workspace_options
def command(workspace: Workspace, **arguments: Any) -> None:
    """Score embeddings made by any code on one split, and record them as submitted.

    The file must hold every test image of the split once (`oodml splits export` lists them); with all training images
    as well, the structure of the training embeddings is measured too.
    """
    from benchmark.evaluate import evaluate

    result = evaluate(workspace.writable(), **arguments)
    for note in result.notes:
        click.echo(f"note: {note}")
    for measure in ("recall@1", "recall@2", "recall@4", "recall@8", "map@1000", "map@r", "r-precision", "nmi", "f1"):
        if measure in result.scores:
            click.echo(f"{measure:12} {100 * result.scores[measure]:6.2f}")
    click.echo(f"record: {result.path} (submitted)")

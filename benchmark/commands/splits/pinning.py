"""`oodml splits use` and `pin`: ladders that everyone compares on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from benchmark.commands import workspace_options
from benchmark.utils.terminal import columns
from benchmark.utils.workspace import Workspace
from reports.wording import byte_size, counted


@click.command()
@click.argument("name", required=False)
@click.option("--replace", "replace_other", is_flag=True, help="Put it in the place of another ladder of the dataset.")
@click.option("--dataset", help="The local copy, if the dataset is your own: folder:PATH, csv:FILE.")
@click.option("--incomplete", is_flag=True,
              help="Take it also where images are missing, without these; results do not count as on it then.")
@workspace_options
def use(workspace: Workspace, name: str | None, replace_other: bool, dataset: str | None, incomplete: bool) -> None:
    """Take a pinned ladder, such as cub@v1, after checking the local copy of its dataset image by image.

    Without a NAME it lists the pinned ladders. NAME may also be the path of a pinned ladder's file.
    """
    from benchmark import ladders
    from benchmark.ladders import pinned
    from reports.records import RECORD
    from splits import croissant, pinning

    if name is None:
        for line in columns([(one.name, one.hash[:12], croissant.summary(one)) for one in
                             map(pinning.get, pinning.names())]):
            click.echo(line)
        return
    index, ladder = pinned.use(name, workspace.writable(), replace_other, dataset, incomplete)
    click.echo(ladders.table(ladder))
    fixed = pinned.get(name)
    missing = sum(fixed.counts) - len(index) if "pinned" not in ladder.made else 0
    told = (f"without {counted(missing, 'image')} of {fixed.name}, so results do not count as on it" if missing else
            f"all {counted(len(index), 'image')} of {index.name} are those of {fixed.name} ({fixed.hash[:12]})")
    click.echo(f"{told}; wrote {ladders.path_of(workspace, index.name)}")
    if there := sum(1 for _ in workspace.runs.glob(f"{index.name}/*/*/*/{RECORD}")):
        click.echo(f"{counted(there, 'finished run of', 'finished runs of')} {index.name} in {workspace.runs}: give "
                   "their `oodml run` commands again, and those on the same classes count on this ladder")


@click.command()
@click.argument("name", metavar="DATASET@VERSION")
@click.option("--dataset", help="The dataset, if it is your own: folder:PATH, csv:FILE.")
@click.option("--licence", help="Terms of the images, for its card [default: those on the dataset's own page].")
@click.option("--note", help="What else a reader should know, for its card.")
@click.option("--lists-only", is_flag=True, help="Class lists and counts alone, without the ids of images.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path),
              help="Folder [default: that of the pinned ladders of this installation].")
@workspace_options
def pin(workspace: Workspace, name: str, out: Path | None, **options: Any) -> None:
    """Fix the ladder of a dataset under a name and a version, so that others can use the very same.

    Writes NAME@VERSION.json (classes, image ids, rungs, distances; no pixels), its card and its Croissant description.
    """
    from benchmark.ladders import pinned
    from splits import pinning

    made, written = pinned.pin(name, workspace, out or pinning.FOLDER, **options)
    click.echo(f"pinned {made.name}, hash {made.hash}")
    for path in written:
        click.echo(f"wrote {path} ({byte_size(path.stat().st_size)})")

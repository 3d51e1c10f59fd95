"""`oodml splits show`, `plot`, `verify` and `export`: what a ladder holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from benchmark.commands import columns_option, workspace_options
from benchmark.commands.splits.options import dataset_argument, feature_options, out_option
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace


@click.command()
@dataset_argument(needed=False)
@click.option("--ladder", "pinned_name", metavar="NAME@VERSION", help="A pinned ladder; no copy of its dataset is "
              "needed.")
@workspace_options
@columns_option
def show(workspace: Workspace, dataset: str | None, pinned_name: str | None) -> None:
    """The rungs (splits) of a ladder: classes, images, distances, the i.i.d. baseline, and how it was made."""
    from benchmark import ladders
    from benchmark.ladders import pinned
    from splits.ladder import against_rule

    if (dataset is None) == (pinned_name is None):
        raise UserError("name a dataset or a pinned ladder (NAME@VERSION)")
    if dataset and "@" in dataset and ":" not in dataset:
        pinned_name = dataset
    ladder = pinned.get(pinned_name).ladder if pinned_name else ladders.load(workspace, str(dataset))
    dataset = ladder.dataset
    click.echo(ladders.table(ladder))
    made = ", ".join(f"{key} {value}" for key, value in ladder.features.items() if key not in ("images", "contents"))
    click.echo(f"features: {made or 'none'}; manifest {ladder.hash[:12]}")
    if known := ladder.made.get("pinned"):
        click.echo(f"pinned as {known['name']}, hash {known['hash'][:12]}")
    other = ", ".join(f"{key} {value}" for key, value in against_rule(ladder).items())
    version = f", oodml {ladder.made['version']}" if ladder.made.get("version") else ""
    click.echo(f"made by `{ladders.made_by(ladder)}`{version}")
    if other:
        click.echo(f"another ladder than `oodml splits build --dataset {dataset}` makes by the suite's rule: {other}")


@click.command()
@dataset_argument()
@click.option("--umap/--no-umap", default=True, help="Also UMAPs of an easy, a medium and a hard split.")
@out_option
@click.option("--seed", type=int, default=0)
@feature_options
@workspace_options
@columns_option
def plot(workspace: Workspace, dataset: str, umap: bool, out: Path | None, seed: int, **options: Any) -> None:
    """Figures: the distance over iterations, and train and test images of three splits in the plane."""
    from benchmark.ladders import figures

    written = figures.draw(dataset, workspace.writable(), out or workspace.splits, umap, seed, click.echo,
                                  **options)
    if not written:
        raise UserError(f"nothing to draw: the ladder of {dataset} was not built step by step here, so there is no "
                        "distance over iterations; leave --no-umap out for UMAPs of its splits")


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--dataset", help="The dataset, if it is your own: folder:PATH, csv:FILE [default: the manifest's].")
@workspace_options
@columns_option
def verify(workspace: Workspace, files: tuple[Path, ...], dataset: str | None) -> None:
    """Check manifests: hash, disjoint sides, classes and counts against the dataset on disk; or pinned ladders."""
    from benchmark import ladders
    from benchmark.ladders import pinned
    from splits import pinning

    if absent := next((path for path in files if not path.is_file()), None):
        there = ", ".join(map(str, sorted(workspace.splits.glob("*.json"))))
        raise UserError(f"there is no file {absent}; give a manifest by its path: "
                        f"{there or f'there is none in {workspace.splits}, `oodml splits build` makes one'}")
    wrong = 0
    for path in files:
        check = pinned.verify if pinning.NAME.fullmatch(path.stem) else ladders.verify
        problems = check(path, workspace, dataset)
        wrong += len(problems)
        verdict = "NOT sound" if problems else "sound"
        click.echo("\n".join([f"{path}: {verdict}", *(f"  {line}" for line in problems)]))
    raise SystemExit(1 if wrong else 0)


@click.command()
@dataset_argument()
@click.option("--split", metavar="ID", help="Number of a split in the ladder, or `default` [default: all].")
@click.option("--format", "form", type=click.Choice(["csv", "json", "txt"]), default="csv")
@click.option("--hold-out", is_flag=True, help="Mark the validation classes, which runs train on unless their protocol "
                                               "says `validation = true`.")
@out_option
@workspace_options
@columns_option
def export(workspace: Workspace, dataset: str, split: str | None, form: str, hold_out: bool,
           out: Path | None) -> None:
    """Write the images of each split as a list that any training code can read.

    Paths and classes stand as they are, also where a spreadsheet takes one for a formula: import csv as text there.
    """
    from benchmark import datasets, ladders
    from benchmark.ladders import rungs
    from benchmark.utils.files import whole
    from reports.storage.paths import below, plain
    from splits.export import export as lines

    index = datasets.load(dataset, workspace.data)
    ladder = ladders.load(workspace, dataset, index, default_only=split == "default")
    folder = out or workspace.splits
    folder.mkdir(parents=True, exist_ok=True)
    for rung in rungs.chosen(split or "all", ladder, option="--split"):
        path = below(folder, f"{plain(ladder.dataset, 'dataset')}-{rung.id}.{form}")
        if form == "json" and ladders.present(path):
            raise UserError(f"{path} is the ladder of {path.stem}, which stays; give another folder with --out")
        with whole(path) as part, part.open("w", encoding="utf-8", newline="") as stream:
            stream.writelines(lines(rung, index.paths, index.labels, index.classes, form, index.roles, hold_out))
        click.echo(f"wrote {path}")

"""`oodml splits`: builds, shows, checks and moves ladders of splits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from benchmark.commands import columns_option
from benchmark.utils.errors import UserError, is_user_error
from benchmark.utils.phases import timed
from benchmark.utils.terminal import columns
from benchmark.utils.workspace import Workspace, workspace_options


@click.group()
def command() -> None:
    """Build, show, plot, check, import and export ladders of splits.

    A ladder holds several train/test splits of the classes of one dataset, from easy to hard: the Fréchet distance
    between train and test images rises from one to the next. Each of these splits is called a rung.
    """


def _feature_options(function: Any) -> Any:
    for option in (
        click.option("--device", help="cpu, cuda, cuda:1 ... [default: the GPU where there is one]."),
        click.option("--weights", "weights_file", help="Weights of the backbone: safetensors, a torch state dict, a "
                     "finished run's folder, or `scratch` for random ones."),
        click.option("--backbone", help="Network whose features the distance uses "
                                        "[default: resnet50; efficientnet_lite0 for embedded data]."),
    ):
        function = option(function)
    return function


def _ladder_options(function: Any) -> Any:
    for option in (
        click.option("--seed", type=int, default=0, help="Of the validation classes and the i.i.d. draws."),
        click.option("--rerank", is_flag=True, help="Rank anew after every single exchange."),
        click.option("--removal/--no-removal", default=True, help="Remove classes once swapping no longer helps.",
                     show_default=True),
        click.option("--reverse/--no-reverse", default=None,
                     help="Also splits easier than the default one [default: if that is far from i.i.d.]."),
        click.option("--iterations", type=click.IntRange(1), help="A fixed number of swap iterations."),
        click.option("--swaps", "swaps_per_iteration", type=click.IntRange(1), help="Classes exchanged an iteration."),
        click.option("--rungs", type=click.IntRange(2),
                     help="Number of rungs, the splits of the ladder [default: 8, or 9 with --reverse]."),
    ):
        function = option(function)
    return function


_replace_option = click.option("--replace", is_flag=True, help="Replace a ladder that runs stand on; it is kept in "
                                                              "WORK/splits/replaced.")


def _iterations(text: str) -> list[int | str]:
    """
    >>> _iterations("-10,0,R22")
    [-10, 0, 'R22']
    """
    parts = [part.strip() for part in text.split(",")]
    wrong = [part for part in parts if not re.fullmatch(r"-?\d+|R\d+", part)]
    if wrong:
        raise click.UsageError(f"'{wrong[0]}' is no iteration: --rung-iterations takes numbers, and R with a number "
                               "for removal, as in -10,0,6,R22")
    return [part if part.startswith("R") else int(part) for part in parts]


@command.command()
@click.option("--dataset", "names", multiple=True, help="May be repeated [default: every dataset that is present].")
@click.option("--rung-iterations", metavar="LIST",
              help="Take the splits of these iterations: -10,0,6,R22 (R: removal).")
@click.option("--default-only", is_flag=True, help="The default split alone: no features, no distance.")
@click.option("--fixed-test", is_flag=False, flag_value="", default=None, metavar="[LADDER]",
              help="A control in which only the training classes move: every split has the test classes of the "
                   "ladder's hardest one, and equally many training classes. LADDER: a manifest or NAME@VERSION "
                   "[default: the ladder built without this option]. Needs a working folder of its own (--work).")
@_replace_option
@_ladder_options
@_feature_options
@workspace_options
@columns_option
def build(workspace: Workspace, names: tuple[str, ...], rung_iterations: str | None, replace: bool,
          **options: Any) -> None:
    """Build the ladder of a dataset, its splits from easy to hard, by swapping and removing classes.

    Of several datasets, one that gets no ladder does not keep the others from theirs.
    """
    from benchmark import datasets
    from benchmark.data import ladders

    workspace.writable()
    if not names:
        names = tuple(name for name in datasets.names() if not name.endswith(":") and name != "glyphs-mini"
                      and datasets.get(name).ladder and not datasets.get(name).members
                      and datasets.present(name, workspace.data))
    chosen = _iterations(rung_iterations) if rung_iterations else None
    failed = []
    for name in names:
        click.echo(f"{name}: building the ladder")
        try:
            if ":" in name and (note := datasets.load(name, workspace.data).note):
                click.echo(f"{name}: note: {note}")
            if warning := ladders.replaced(name, workspace, replace):
                click.echo(f"{name}: warning: {warning}", err=True)
            ladder = ladders.build(name, workspace, rung_iterations=chosen, progress=_tell, **options)
            if not replace:
                ladders.refuse_to_replace(ladder.dataset, ladder, workspace)
            path = ladders.save(ladder, workspace)
        except Exception as error:
            if len(names) == 1 or not is_user_error(error):
                raise
            failed.append(name)
            click.echo(f"{name}: {error}", err=True)
            continue
        click.echo(ladders.table(ladder))
        click.echo(f"wrote {path}")
    if failed:
        raise UserError(f"no ladder was made for {', '.join(failed)}; the cause of each stands above")


def _tell(step: Any) -> None:
    if step.iteration % 10 == 0:
        with timed(f"report {step.kind} {step.iteration}"):
            click.echo(f"  {step.kind} {step.iteration}: distance {step.frd:.2f} over images, "
                       f"{step.frd_class_means_released:.2f} over class means")


@command.command()
@click.option("--dataset")
@click.option("--ladder", "pinned_name", metavar="NAME@VERSION", help="A pinned ladder; no copy of its dataset is "
              "needed.")
@workspace_options
@columns_option
def show(workspace: Workspace, dataset: str | None, pinned_name: str | None) -> None:
    """The rungs (splits) of a ladder: classes, images, distances, the i.i.d. baseline, and how it was made."""
    from benchmark.data import ladders
    from splits import pinning
    from splits.ladder import against_rule

    if (dataset is None) == (pinned_name is None):
        raise UserError("name a dataset (--dataset NAME) or a pinned ladder (--ladder NAME@VERSION)")
    ladder = pinning.get(pinned_name).ladder if pinned_name else ladders.load(workspace, str(dataset))
    dataset = ladder.dataset
    click.echo(ladders.table(ladder))
    made = ", ".join(f"{key} {value}" for key, value in ladder.features.items() if key not in ("images", "contents"))
    click.echo(f"features: {made or 'none'}; manifest {ladder.hash[:12]}")
    if known := ladder.made.get("pinned"):
        click.echo(f"pinned as {known['name']}, hash {known['hash'][:12]}")
    other = ", ".join(f"{key} {value}" for key, value in against_rule(ladder).items())
    version = f", oodml {ladder.made['version']}" if "version" in ladder.made else ""
    click.echo(f"made by `{ladders.made_by(ladder)}`{version}")
    if other:
        click.echo(f"another ladder than `oodml splits build --dataset {dataset}` makes by the suite's rule: {other}")


@command.command()
@click.option("--dataset", required=True)
@click.option("--umap/--no-umap", default=True, help="Also UMAPs of an easy, a medium and a hard split.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder [default: WORK/splits].")
@click.option("--seed", type=int, default=0)
@_feature_options
@workspace_options
@columns_option
def plot(workspace: Workspace, dataset: str, umap: bool, out: Path | None, seed: int, **options: Any) -> None:
    """Figures: the distance over iterations, and train and test images of three splits in the plane."""
    from benchmark.data import ladder_figures

    written = ladder_figures.draw(dataset, workspace.writable(), out or workspace.splits, umap, seed, **options)
    if not written:
        raise UserError(f"nothing to draw: the ladder of {dataset} was not built step by step here, so there is no "
                        "distance over iterations; leave --no-umap out for UMAPs of its splits")
    for path in written:
        click.echo(f"wrote {path}")


@command.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--dataset", help="The dataset, if it is your own: folder:PATH, csv:FILE [default: the manifest's].")
@workspace_options
@columns_option
def verify(workspace: Workspace, files: tuple[Path, ...], dataset: str | None) -> None:
    """Check manifests: hash, disjoint sides, classes and counts against the dataset on disk."""
    from benchmark.data import ladders

    wrong = 0
    for path in files:
        problems = ladders.verify(path, workspace, dataset)
        wrong += len(problems)
        verdict = "NOT sound" if problems else "sound"
        click.echo("\n".join([f"{path}: {verdict}", *(f"  {line}" for line in problems)]))
    raise SystemExit(1 if wrong else 0)


@command.command()
@click.option("--dataset", required=True)
@click.option("--split", metavar="ID", help="Number of a split in the ladder, or `default` [default: all].")
@click.option("--format", "form", type=click.Choice(["csv", "json", "txt"]), default="csv")
@click.option("--hold-out", is_flag=True, help="Mark the validation classes, which runs train on unless their protocol "
                                               "says `validation = true`.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder [default: WORK/splits].")
@workspace_options
@columns_option
def export(workspace: Workspace, dataset: str, split: str | None, form: str, hold_out: bool,
           out: Path | None) -> None:
    """Write the images of each split as a list that any training code can read."""
    from benchmark import datasets
    from benchmark.data import ladders
    from reports.storage.paths import below, plain
    from splits.export import export as lines

    index = datasets.load(dataset, workspace.data)
    ladder = ladders.load(workspace, dataset, index)
    folder = out or workspace.splits
    folder.mkdir(parents=True, exist_ok=True)
    for rung in ladder.splits if split is None else [ladders.rung(ladder, split)]:
        path = below(folder, f"{plain(ladder.dataset, 'dataset')}-{rung.id}.{form}")
        with path.open("w", encoding="utf-8", newline="") as stream:
            stream.writelines(lines(rung, index.paths, index.labels, index.classes, form, index.roles, hold_out))
        click.echo(f"wrote {path}")


@command.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dataset", required=True)
@_replace_option
@workspace_options
def import_(workspace: Workspace, file: Path, dataset: str, replace: bool) -> None:
    """Take over a split file released with the ooDML paper; nothing in it is run."""
    from benchmark.data import ladders

    imported = ladders.import_released(file, dataset, workspace.writable())
    for what, names in (("classes", imported.missing_classes), ("files of few-shot episodes", imported.missing_files)):
        if names:
            click.echo(f"{len(names)} {what} are not in the local copy of {dataset}: {', '.join(names[:5])}"
                       f"{' ...' if names[5:] else ''}")
    click.echo(ladders.table(imported.ladder))
    if imported.missing_classes:
        raise click.ClickException("nothing was written, as runs would miss these classes")
    if not replace:
        ladders.refuse_to_replace(imported.ladder.dataset, imported.ladder, workspace)
    click.echo(f"wrote {ladders.save(imported.ladder, workspace)}")


@command.command()
@click.option("--dataset", required=True)
@click.option("--against", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="A manifest of the same dataset: also the overlap of rungs and the order of moves.")
@_feature_options
@workspace_options
def measure(workspace: Workspace, dataset: str, against: Path | None, **options: Any) -> None:
    """The distances of a ladder, of a released one above all, with this copy of the dataset and another network."""
    from benchmark.data import ladders
    from splits import manifest
    from splits.compare import overlap

    ladder = ladders.load(workspace, dataset)
    other = manifest.load(against) if against else None
    click.echo(ladders.table(ladders.measured(ladder, dataset, workspace.writable(), **options)))
    if other:
        alike = overlap(ladder, other)
        click.echo(f"\noverlap of the classes of each rung (rows) with the rungs of {against} (Jaccard):")
        for line in columns([(str(split.id), *(f"{value:.2f}" for value in row))
                             for split, row in zip(ladder.splits, alike.rungs)], left=0):
            click.echo(line)
        click.echo(f"rank correlation of when classes change sides: {alike.moves:.2f}")


@command.command()
@click.argument("name", required=False)
@click.option("--replace", "replace_other", is_flag=True, help="Put it in the place of another ladder of the dataset.")
@workspace_options
def use(workspace: Workspace, name: str | None, replace_other: bool) -> None:
    """Take a pinned ladder, such as cub@v1, after checking the local copy of its dataset image by image.

    Without a NAME it lists the pinned ladders. NAME may also be the path of a pinned ladder's file.
    """
    from benchmark.data import ladders, pinned
    from splits import croissant, pinning

    if name is None:
        for line in columns([(one.name, one.hash[:12], croissant.summary(one)) for one in
                             map(pinning.get, pinning.names())]):
            click.echo(line)
        return
    index, ladder = pinned.use(name, workspace.writable(), replace_other)
    click.echo(ladders.table(ladder))
    click.echo(f"all {len(index):,} images of {index.name} are those of {ladder.made['pinned']['name']} "
               f"({ladder.made['pinned']['hash'][:12]}); wrote {ladders.path_of(workspace, index.name)}")


@command.command()
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
    from benchmark.data import pinned
    from splits import pinning

    made, written = pinned.pin(name, workspace, out or pinning.FOLDER, **options)
    click.echo(f"pinned {made.name}, hash {made.hash}")
    for path in written:
        click.echo(f"wrote {path} ({path.stat().st_size:,} bytes)")


@command.command()
@click.option("--datasets", "names", required=True, metavar="LIST", help="Names, separated by commas.")
@_feature_options
@workspace_options
def cross(workspace: Workspace, names: str, **options: Any) -> None:
    """Distance of each dataset's train set (rows) to each one's test set (columns)."""
    from benchmark.data import ladders

    distances = ladders.cross(names.split(","), workspace.writable(), **options)
    rows = [("train \\ test", *distances.names)]
    rows += [(name, *(f"{value:.2f}" for value in row)) for name, row in zip(distances.names, distances.matrix)]
    for line in columns(rows, left=0):
        click.echo(line)


@command.command()
@click.option("--dataset", required=True)
@click.option("--backbones", required=True, metavar="LIST", help="Names, separated by commas.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder [default: WORK/splits].")
@click.option("--device", help="cpu, cuda, cuda:1 ... [default: the GPU where there is one].")
@_ladder_options
@workspace_options
def compare(workspace: Workspace, dataset: str, backbones: str, out: Path | None, **options: Any) -> None:
    """Does the ladder depend on the backbone? Distances over iterations, order of moves and overlap of splits."""
    from benchmark.data import ladder_figures, ladders

    compared = ladders.compare_backbones(dataset, backbones.split(","), workspace.writable(), **options)
    click.echo(ladder_figures.comparison_text(compared))
    click.echo(f"wrote {ladder_figures.comparison(compared, dataset, out or workspace.splits)}")

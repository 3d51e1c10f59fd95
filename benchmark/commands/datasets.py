"""`oodml datasets`: which datasets there are, what is known of each, whether one is sound, and decoding it once."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from benchmark.commands import Group, columns_option, workspace_options
from benchmark.utils.terminal import columns
from benchmark.utils.workspace import Workspace
from reports.wording import byte_size, counted

jobs_option = click.option("--jobs", type=click.IntRange(min=1), help="Processes that decode [default: one a core].")


def _names() -> list[str]:
    from benchmark import datasets

    return datasets.names()


@click.group(cls=Group, names=_names, lister="oodml datasets", invoke_without_command=True)
@workspace_options
def command(workspace: Workspace) -> None:
    """List the datasets; show, check or prepare one.

    Nothing is ever downloaded: `oodml datasets show NAME` says where each archive comes from and what its folder must
    look like.
    """
    context = click.get_current_context()
    given = {key: value for key, value in context.params.items() if value is not None}
    context.default_map = {name: given for name in ("show", "check", "prepare")}
    if context.invoked_subcommand is None:
        _table(workspace)


def _table(workspace: Workspace) -> None:
    from benchmark import datasets
    from benchmark.overview import listing

    for line in columns(list(listing.rows(workspace.data))):
        click.echo(line)
    click.echo()
    for name in datasets.names():
        if name.endswith(":"):
            click.echo(datasets.get(name).title)
    click.echo(f"data folder: {workspace.data} (--data DIR or OODML_DATA); `oodml datasets show NAME` says where a "
               "dataset comes from")


@command.command()
@click.argument("name")
@click.option("--sheet", type=click.Path(dir_okay=False, path_type=Path),
              help="Write a contact sheet of sampled images to this PNG [embedded datasets: WORK/NAME-contact.png].")
@click.option("--sizes", type=click.Path(dir_okay=False, path_type=Path),
              help="Draw how many images its training classes have into this file (.png, .svg, .pdf).")
@workspace_options
@columns_option
def show(workspace: Workspace, name: str, sheet: Path | None, sizes: Path | None) -> None:
    """Where a dataset comes from, its tree and its counts."""
    from benchmark import datasets
    from benchmark.datasets.reading import NotThere
    from benchmark.overview.contact_sheet import contact_sheet
    from benchmark.overview.counts import describe, facts

    name = datasets.source(name, workspace.splits)
    dataset = datasets.get(name)
    click.echo(dataset.title)
    if dataset.source:
        click.echo(f"source: {dataset.source}")
    if dataset.tree:
        click.echo(f"tree:\n{_indented(dataset.tree)}")
    if dataset.counts is not None:
        click.echo(f"official: {describe(dataset.counts)}")
    if dataset.size is not None:
        click.echo(f"official: {counted(dataset.size[0], 'image')} of {counted(dataset.size[1], 'class')}")
    if dataset.name == name and name.endswith(":"):
        return
    try:
        index = datasets.load(name, workspace.data)
    except NotThere as error:
        if dataset.name.endswith(":"):
            raise
        click.echo(f"absent: {error}")
        return
    for line in facts(index):
        click.echo(line)
    if dataset.embedded and index.domains is None:
        from benchmark.data.store import open_store
        from benchmark.overview import baseline

        store = open_store(index, workspace.writable().cache)
        click.echo("before anything is learnt, Recall@1 on the default test classes: "
                   f"raw pixels {100 * baseline.raw_pixel_recall(index, store):.0f} %, frozen EfficientNet-Lite0 "
                   f"{100 * baseline.frozen_recall(index, store, workspace):.0f} %")
    if sizes is not None:
        from benchmark.overview import class_sizes

        click.echo(f"sizes of classes: {class_sizes.draw(index, sizes)}")
    if sheet is None and dataset.embedded:
        sheet = workspace.writable().root / f"{index.name}-contact.png"
    if sheet is not None:
        click.echo(f"contact sheet: {contact_sheet(index, sheet)}")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


@command.command()
@click.argument("name")
@jobs_option
@workspace_options
@columns_option
def check(workspace: Workspace, name: str, jobs: int | None) -> None:
    """Decode every image of a dataset and say what is wrong. Exit code 0: sound, 1: something is wrong.

    Images that were decoded for training (`oodml datasets prepare`) are held against the files as they are now. A line
    that begins with `note` tells of files that play no part, which is no fault.
    """
    from tqdm import tqdm

    from benchmark import datasets
    from benchmark.data.contents import changed_silently, contents
    from benchmark.data.store import kept
    from benchmark.overview.counts import count, describe
    from benchmark.overview.faults import examine
    from benchmark.overview.report import first
    from benchmark.utils.errors import UserError

    source = datasets.source(name, workspace.splits)
    dataset = datasets.get(source)
    try:
        index = datasets.load(source, workspace.data)
    except UserError as error:
        click.echo(f"{name}: {error}")
        _expected(dataset.tree)
        sys.exit(1)
    silently = changed_silently(index, workspace.cache)
    with tqdm(total=len(index), unit="img", desc=f"decoding {name}", file=sys.stderr, disable=None) as bar:
        report = examine(index, dataset.counts, jobs, bar.update, kept(index, workspace.cache), dataset.size)
    problems = report.problems()
    if silently:
        problems.append(f"changed: {counted(len(silently), 'file has', 'files have')} other bytes than before, though "
                        f"size and time of change are the same: {first(silently)}; put back what was there, or make "
                        "ladders and runs anew")
    where = "" if index.root is None else f" in {index.root}"
    for problem in problems:
        click.echo(f"{name}{where}: {problem}")
    for note in [*([index.note] if index.note else []), *report.notes()]:
        click.echo(f"{name}{where}: note: {note}")
    if report.wrong_layout:
        _expected(dataset.tree)
    if problems:
        sys.exit(1)
    official = " (the official counts)" if dataset.counts or dataset.size else ""
    click.echo(f"{name}: sound; {describe(count(index))}{official}")
    if found := contents(index, workspace.cache):
        click.echo(f"hash of the files' contents: {found}")
    if dataset.ladder and not (workspace.splits / f"{index.name}.json").exists():
        click.echo(f"Next: `oodml splits build --dataset {shlex.quote(name)}{workspace.option()}` makes its ladder of "
                   "splits")


def _expected(tree: str) -> None:
    if tree:
        click.echo(f"expected tree:\n{_indented(tree)}")


@command.command()
@click.argument("name")
@jobs_option
@workspace_options
@columns_option
def prepare(workspace: Workspace, name: str, jobs: int | None) -> None:
    """Decode every image of a dataset once and keep it for training; what is kept already is verified by its hash.

    It serves as long as no file has another size or time of change; a sample of the files is read again all the same.
    """
    from benchmark import datasets
    from benchmark.data.contents import SAMPLE, changed_silently
    from benchmark.data.store import open_store

    index = datasets.load(datasets.source(name, workspace.splits), workspace.data)
    if changed := changed_silently(index, workspace.writable().cache, SAMPLE):
        click.echo(f"{name}: {changed[0]} has other bytes than before, though its size and time of change are the "
                   "same: all files are read anew", err=True)
    store = open_store(index, workspace.writable().cache, jobs=jobs, progress=True)
    store.verify()
    click.echo(f"{name}: {counted(len(store), 'image')} decoded, {byte_size(store.nbytes)} in {store.folder}")

"""`oodml records`: finished runs as a small folder that can be committed and carried, and back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmark.commands import Group, own_names, records_option, workspace_options
from benchmark.utils.workspace import Workspace
from reports.wording import byte_size, counted

if TYPE_CHECKING:
    from reports.analysis.study_progress import StudyProgress


@click.group(cls=Group)
def command() -> None:
    """Pack the records of finished runs into a small folder, and unpack such a folder into a workspace."""


@command.command()
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@records_option
@click.option("--dataset", "--datasets", "datasets", metavar="LIST", help="Only these, with commas between them.")
@click.option("--study", "studies", multiple=True, metavar="NAME",
              help="A study whose runs these are: the leaderboard then says how far it is. May be repeated.")
@click.option("--galleries", is_flag=True, help="Only add the galleries of `oodml inspect` to what OUT has of the same "
              "cells: for records whose weights are gone, trained again. Their scores stay.")
@workspace_options
def pack(workspace: Workspace, out: Path, folders: tuple[Path, ...], datasets: str | None,
         studies: tuple[str, ...], galleries: bool) -> None:
    """Write the finished runs to OUT/DATASET/METHOD.runs.jsonl, a line a run, their ladders to OUT/splits, and
    what `oodml tune` chose for them to OUT/tune.

    What OUT holds already stays; a run that is there already is replaced. Scores, settings and facts of splits are
    kept to the bit and `oodml report --records OUT` shows them as it shows loose records; weights, logs and outcomes of
    single queries stay behind (their sums by class go along, from which the tests between methods are made).
    """
    from reports import packing
    from reports.analysis import study_progress

    if galleries:
        files, count = packing.add_galleries(folders or (workspace.runs,), out)
        click.echo(f"added {counted(count, 'gallery')} to {', '.join(str(path) for path in files)}")
        return
    wanted = [_progress_of(name, workspace) for name in studies]  # before anything is written: it may need datasets
    written, runs = packing.pack(folders or (workspace.runs,), out, own_names(datasets, workspace))
    written += _ladders(workspace, out)
    written += [study_progress.write(out, one) for one in wanted]
    written += _searches(workspace, out)
    size = sum(path.stat().st_size for path in written)
    click.echo(f"packed {counted(runs, 'run')} in {counted(len(written), 'file')}, {byte_size(size)}, into {out}")


def _ladders(workspace: Workspace, out: Path) -> list[Path]:
    """The manifests that the packed runs were made on, without few-shot episodes, which are forty times their size.

    One of other runs is named and left out.
    """
    from benchmark.data import ladders
    from reports import records
    from reports.storage import paths
    from splits import manifest

    packed, _ = records.scan(out)
    written = []
    for dataset, here in packed.groupby("dataset", sort=True):
        source = ladders.path_of(workspace, str(dataset))
        if not source.is_file():
            continue
        ladder = manifest.load(source)
        if not set(here["split_hash"]) <= {split.hash for split in ladder.splits}:
            click.echo(f"{source} is not the ladder of all packed runs of {dataset} and stays behind", err=True)
            continue
        written.append(paths.below(out / "splits", source.name))
        manifest.save(replace(ladders.published(ladder), episodes={}), written[-1])
    return written


def _searches(workspace: Workspace, out: Path) -> list[Path]:
    """Copies what `oodml tune` tried and chose for methods among the packed runs."""
    from reports import records
    from reports.analysis import tuning

    packed, _ = records.scan(out)
    cells = set(zip(packed["dataset"], packed["method"]))
    return [_copied(path, out / tuning.FOLDER) for path in sorted((workspace.root / tuning.FOLDER).glob("*.json"))
            if any((search["dataset"], search["method"]) in cells for search in tuning.load(path))]


def _copied(source: Path, folder: Path) -> Path:
    """The copy of a file in a folder, whole or not at all: what is there is not copied again."""
    from reports.storage import paths

    folder.mkdir(parents=True, exist_ok=True)
    return paths.write(paths.below(folder, paths.plain(source.name, "file")), paths.content(source))


def _own_files(folder: Path, kind: str) -> list[Path]:
    """The JSON files of a kind in a folder of packed records or in folders of such; no links to files elsewhere."""
    from reports.storage import paths

    listed = sorted([*folder.glob(f"{kind}/*.json"), *folder.glob(f"*/{kind}/*.json")])
    return [path for path in listed if paths.is_own_file(folder, str(path.relative_to(folder)))]


def _progress_of(name: str, workspace: Workspace) -> StudyProgress:
    """The runs that a study asks for; where its datasets are not at hand, as it was last run or unpacked here."""
    from benchmark.config import study as studies
    from benchmark.datasets.reading import NotThere
    from benchmark.posthoc import study_progress
    from benchmark.runs.job import SweepOptions
    from benchmark.runs.matrix import gather
    from reports.analysis.study_progress import read

    study = studies.load(name)
    try:
        return study_progress.of(study, (job.spec for job in gather(study, SweepOptions(workspace)).jobs), name)
    except NotThere as error:
        known = [one for one in read([workspace.root], []) if one.name == study.name]
        if not known:
            raise
        click.echo(f"study {study.name} as it was last run or unpacked in {workspace.root}, since its runs cannot be "
                   f"listed now: {error}", err=True)
        return known[0]


@command.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@workspace_options
def unpack(workspace: Workspace, folder: Path) -> None:
    """Put the packed runs in FOLDER as finished runs into the workspace, so that `oodml run` does not run them again.

    Their ladders go along. A run or a ladder that is there already is kept as it is.
    """
    from reports import packing
    from reports.analysis import study_progress, tuning
    from reports.safe_text import one_line
    from reports.storage import paths
    from splits import SplitError, manifest

    ladders = _own_files(folder, "splits")
    for source in ladders:
        paths.plain(source.name, "file")  # before anything is written
    written, there = packing.unpack(folder, workspace.writable().runs)
    click.echo(f"unpacked {counted(written, 'run')} into {workspace.runs}" + (
        f", {counted(there, 'was', 'were')} there already" if there else ""))
    for kind in (study_progress.FOLDER, tuning.FOLDER):
        for source in _own_files(folder, kind):
            if kind == study_progress.FOLDER or not (workspace.root / kind / source.name).exists():
                _copied(source, workspace.root / kind)
    for source in ladders:
        target = workspace.splits / source.name
        try:
            theirs = manifest.load(source)
            ours = manifest.load(target) if target.exists() else None
        except SplitError as error:
            click.echo(f"left out: {error}", err=True)
            continue
        if theirs.dataset != source.stem:
            click.echo(f"left out: {source} is a ladder of another dataset, {one_line(theirs.dataset, 80)}", err=True)
            continue
        if ours is None:
            _copied(source, workspace.splits)
        elif [split.hash for split in ours.splits] != [split.hash for split in theirs.splits]:
            click.echo(f"{target} is another ladder than that of the unpacked runs, which do not count on it; to go on "
                       f"with them, put {source} in its place", err=True)

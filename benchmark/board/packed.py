"""Finished runs as a small folder that can be committed and carried, with their ladders, studies and searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmark import ladders
from benchmark.board import study_progress
from benchmark.config import study as studies
from benchmark.datasets.reading import NotThere
from benchmark.utils.terminal import Tell
from benchmark.utils.workspace import Workspace
from reports import packing, records
from reports.analysis import tuning
from reports.analysis.study_progress import FOLDER, StudyProgress, read, write
from reports.safe_text import one_line
from reports.storage import paths
from splits import SplitError, manifest


def pack(workspace: Workspace, out: Path, folders: Sequence[Path], datasets: list[str] | None,
         named: Sequence[str], tell: Tell) -> tuple[list[Path], int]:
    """Pack the finished runs in these folders, with what belongs to them in the working folder; see `reports.packing`.

    Args:
        datasets: only these.
        named: the studies whose runs these are.
        tell: is told what was left out, one line each.

    Returns:
        The files that were written, and how many runs.
    """
    wanted = [_progress_of(name, workspace, tell) for name in named]  # before anything is written: it may need datasets
    written, runs = packing.pack(folders or (workspace.runs,), out, datasets)
    written += _ladders(workspace, out, tell)
    written += [write(out, one) for one in wanted]
    written += _searches(workspace, out)
    return written, runs


def unpack(folder: Path, workspace: Workspace, tell: Tell) -> tuple[int, int]:
    """Put packed runs and what belongs to them into the working folder; what is there already stays.

    Returns:
        How many runs were written, and how many were there.
    """
    packed = _own_files(folder, "splits")
    for source in packed:
        paths.plain(source.name, "file")  # before anything is written
    counts = packing.unpack(folder, workspace.runs)
    for kind in (FOLDER, tuning.FOLDER):
        for source in _own_files(folder, kind):
            if kind == FOLDER or not (workspace.root / kind / source.name).exists():
                _copied(source, workspace.root / kind)
    for source in packed:
        _unpack_ladder(source, workspace, tell)
    return counts


def _unpack_ladder(source: Path, workspace: Workspace, tell: Tell) -> None:
    target = workspace.splits / source.name
    try:
        theirs = manifest.load(source)
        ours = manifest.load(target) if target.exists() else None
    except SplitError as error:
        tell(f"left out: {error}")
        return
    if theirs.dataset != source.stem:
        tell(f"left out: {source} is a ladder of another dataset, {one_line(theirs.dataset, 80)}")
    elif ours is None:
        _copied(source, workspace.splits)
    elif [split.hash for split in ours.splits] != [split.hash for split in theirs.splits]:
        tell(f"{target} is another ladder than that of the unpacked runs, which do not count on it; to go on with "
             f"them, put {source} in its place")


def _progress_of(name: str, workspace: Workspace, tell: Tell) -> StudyProgress:
    """The runs that a study asks for; where its datasets are not at hand, as it was last run or unpacked here."""
    from benchmark.runs.job import SweepOptions  # torch comes along, which unpacking does without
    from benchmark.runs.matrix import gather

    study = studies.load(name)
    try:
        return study_progress.of(study, (job.spec for job in gather(study, SweepOptions(workspace)).jobs), name)
    except NotThere as error:
        known = [one for one in read([workspace.root], []) if one.name == study.name]
        if not known:
            raise
        tell(f"study {study.name} as it was last run or unpacked in {workspace.root}, since its runs cannot be listed "
             f"now: {error}")
        return known[0]


def _ladders(workspace: Workspace, out: Path, tell: Tell) -> list[Path]:
    """The manifests that the packed runs were made on, without few-shot episodes, which are forty times their size.

    One of other runs is named and left out.
    """
    packed, _ = records.scan(out)
    written = []
    for dataset, here in packed.groupby("dataset", sort=True):
        source = ladders.path_of(workspace, str(dataset))
        if not source.is_file():
            continue
        ladder = manifest.load(source)
        if not set(here["split_hash"]) <= {split.hash for split in ladder.splits}:
            tell(f"{source} is not the ladder of all packed runs of {dataset} and stays behind")
            continue
        written.append(paths.below(out / "splits", source.name))
        manifest.save(replace(ladders.published(ladder), episodes={}), written[-1])
    return written


def _searches(workspace: Workspace, out: Path) -> list[Path]:
    """Copies what `oodml tune` tried and chose for methods among the packed runs."""
    packed, _ = records.scan(out)
    cells = set(zip(packed["dataset"], packed["method"]))
    return [_copied(path, out / tuning.FOLDER) for path in sorted((workspace.root / tuning.FOLDER).glob("*.json"))
            if any((search["dataset"], search["method"]) in cells for search in tuning.load(path))]


def _copied(source: Path, folder: Path) -> Path:
    """The copy of a file in a folder, whole or not at all: what is there is not copied again."""
    folder.mkdir(parents=True, exist_ok=True)
    return paths.write(paths.below(folder, paths.plain(source.name, "file")), paths.content(source))


def _own_files(folder: Path, kind: str) -> list[Path]:
    """The JSON files of a kind in a folder of packed records or in folders of such; no links to files elsewhere."""
    listed = sorted([*folder.glob(f"{kind}/*.json"), *folder.glob(f"*/{kind}/*.json")])
    return [path for path in listed if paths.is_own_file(folder, str(path.relative_to(folder)))]

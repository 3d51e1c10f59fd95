"""A finished run looked into: what it finds for sampled and worst queries, its embedding in the plane, its parts.

Writes `inspect/` beside the run's record: small pictures, figures and `inspection.json`, from which `oodml report`
makes a page. Nothing is trained; the embeddings are made again from the kept weights.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import methods
from benchmark import datasets, ladders
from benchmark.config.spec import RunSpec
from benchmark.data import weights
from benchmark.data.store import ImageStore
from benchmark.data.task import Task
from benchmark.datasets import DatasetIndex
from benchmark.posthoc import embedding_figures, gallery
from benchmark.posthoc.bar import Bar
from benchmark.posthoc.finished import Finished
from benchmark.runs import status
from benchmark.training import train
from benchmark.utils.devices import best_device
from benchmark.utils.errors import UserError
from benchmark.utils.files import write_json
from benchmark.utils.terminal import Tell
from benchmark.utils.workspace import Workspace
from reports import records
from reports.analysis import galleries, standings
from reports.analysis.results import Results
from reports.html.extras import INSPECTION, SCHEMA
from splits.manifest import Ladder

MOST_POINTS = 3000
"""Test images that the plane shows."""
NAMED = 7
"""Classes that it shows in colour: as many as `embedding_figures.plane` has hues."""


def opened(folder: Path) -> Finished:
    """The run in a folder; a UserError where it is none, is not finished or kept no weights."""
    status.check_finished(folder)
    run = Finished.at(folder)
    if not run.has_weights and not run.frozen_at_hand:
        raise UserError(f"{folder} kept no weights (nothing was trained, or they were deleted): nothing to look into")
    return run


def indexed(run: Finished, workspace: Workspace, dataset: str | None) -> DatasetIndex:
    """The images of a run, read as the user names them now or named them then."""
    try:
        return datasets.load(dataset or run.dataset, workspace.data)
    except UserError as error:
        if dataset:
            raise
        raise UserError(f"the images of {run.folder} were not found: {error}; for a dataset of your own, "
                        "`--dataset folder:PATH` (or csv:, union:) says where they are") from None


def with_ends(run: Finished, index: DatasetIndex, ladder: Ladder, workspace: Workspace) -> list[Finished]:
    """The run, and the same method and seed on the nearest and the farthest rung where these are finished."""
    def kind(spec: RunSpec) -> tuple[Any, ...]:
        return spec.settings, spec.base_settings, spec.protocol, spec.weights

    rungs = sorted((split for split in ladder.splits if split.frd is not None), key=lambda split: split.frd or 0.0)
    wanted = {rungs[0].id, rungs[-1].id} - {run.spec.split} if rungs else set()
    by_split = {run.spec.split: run}
    for split in sorted(wanted):
        home = workspace.runs / run.spec.dataset / str(split) / run.folder.parent.name
        for folder in sorted(home.glob(f"s{run.spec.seed}-*")):
            if (folder / records.RECORD).is_file() and (run.frozen_at_hand or (folder / weights.RUN).is_file()):
                other = opened(folder)
                if kind(other.spec) == kind(run.spec) and other.fits(index, ladder, run.spec.contents):
                    by_split[split] = other
    return [by_split[split] for split in sorted(by_split)]


def inspect(workspace: Workspace, folder: Path, *, queries: int = 8, plane: bool = True, ends: bool = True,
            dataset: str | None = None, device: str | None = None, seed: int = 0,
            tell: Tell = lambda line: None) -> list[Path]:
    """Shows what a finished run retrieves: galleries of queries, figures of the embedding.

    Args:
        folder: the folder of the run.
        queries: rows of each gallery.
        plane: also the UMAP of the test embeddings.
        ends: also the same method and seed on the splits of least and greatest distance, where these are finished.
        dataset: where the images are, if not where they were when it was run.

    Returns:
        The paths of the files written, one a run.
    """
    run = opened(folder)
    device = best_device(device)
    index = indexed(run, workspace, dataset)
    ladder = ladders.load(workspace, dataset or run.dataset, index)
    store = run.images(index, workspace)
    looked = [(one, one.task(index, ladder, store.contents))
              for one in (with_ends(run, index, ladder, workspace) if ends else [run])]
    with Bar(sum(len(task.test) for _, task in looked), tell) as bar:
        return [_look_into(*each, store, device, queries, plane, seed, dataset or run.dataset, bar) for each in looked]


def _look_into(one: Finished, task: Task, store: ImageStore, device: str, queries: int, plane: bool, seed: int,
               dataset: str, bar: Bar) -> Path:
    """Write `inspect/` of one run, and its gallery to be packed where the images of the dataset are drawn here."""
    method, loader = one.ready(len(task.train.classes), store, device)
    watched = embedding_figures.watch(method)
    bar.begin(f"embedding {one.spec.label()}")
    embeddings = train.embed(method, loader, task.test.ids, one.protocol, device, bar.step)
    home = one.folder / INSPECTION.rpartition("/")[0]
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    retrieved = gallery.retrieve(task.test, embeddings)
    sampled, worst = (gallery.sample(task.test, retrieved, kind, queries, seed) for kind in ("sampled", "worst"))
    for image in sorted({shot["id"] for shot in (*gallery.shots(sampled), *gallery.shots(worst))}):
        gallery.picture(store.image(image)).save(home / gallery.file_of(image))
    figures = []
    if plane:
        bar.begin(f"UMAP of {one.spec.label()}")
        named = list(dict.fromkeys(row["query"]["class"] for row in sampled["rows"]))[:NAMED]
        figures.append(embedding_figures.plane(task, embeddings, home, named, MOST_POINTS, seed))
    figures += embedding_figures.figures(watched, task, store, loader, home, seed)
    names = sorted(path.name for path in home.iterdir())
    right = float((task.test.labels[retrieved.neighbours[:, 0]] == task.test.labels[retrieved.queries]).mean())
    if datasets.get(dataset).embedded:  # drawn here: everybody may have the pictures
        write_json(one.folder / galleries.NAME, gallery.compact(sampled, store, right))
    lead = (f"{len(retrieved.queries):,} queries among {len(task.test):,} images of {len(task.test.classes):,} classes "
            f"that were not trained on; the first answer is right for {100 * right:.1f} % of them.")
    write_json(one.folder / INSPECTION, {
        "schema": SCHEMA, "run": one.spec.identity, "side": gallery.SIDE, "galleries": [sampled, worst],
        "figures": figures, "files": names, "lead": lead})
    return one.folder / INSPECTION


def inspect_all(workspace: Workspace, runs: Sequence[Path], tell: Tell, **how: Any) -> None:
    """Looks into runs, each by itself; one that cannot be opened is told and left out unless it is the only one."""
    for number, run in enumerate(runs, 1):
        try:
            for path in inspect(workspace, run, ends=False, tell=tell, **how):
                tell(f"looked into {path.parent.parent} ({number} of {len(runs)})")
        except (UserError, methods.MethodError) as error:  # one of a plug-in since changed, say, hides no others
            if len(runs) == 1:
                raise
            tell(f"left out: {error}")


def unknown(results: Results) -> list[str]:
    """Methods of runs that kept their weights but are in no register here, as those of a plug-in that is not loaded."""
    known = {*methods.names()}
    return sorted({name for name, run in zip(results.runs["base_method"], results.runs["path"])
                   if not known.issuperset(name.split(":")) and (Path(run) / weights.RUN).is_file()})


def typical(results: Results, of: Collection[str] | None = None) -> list[Path]:
    """Of each dataset the runs of the best, the median and the frozen row on the nearest and the farthest split run.

    Those that kept no weights are left out, as unpacked records are, and so are unions; `of`: these methods alone.
    """
    board, eligible, found = standings.of(results), results.runs, []
    if of is not None:
        eligible = eligible[eligible["base_method"].isin(of)]
        board = board[board["label"].isin(eligible["label"])]
    board = board[board["kind"].isin(["ladder", "split"]) & (board["metric"] == results.metrics[0])]
    for dataset, rows in board.groupby("board", sort=True):
        ranked = standings.in_order(rows)
        frozen = eligible.loc[eligible["base_method"] == "frozen", "label"]
        alike = rows["network"].isin(rows.loc[rows["label"].isin(ranked), "network"]) | (not ranked)
        frozen = rows.loc[alike & rows["label"].isin(frozen), "label"]
        labels = [*ranked[:1], *ranked[len(ranked) // 2:][:1], *frozen[:1]]
        here = eligible[eligible["dataset"] == dataset]
        splits = (here[here["label"].isin(ranked)] if ranked else here).sort_values(["frd", "split"])["split"]
        for label in dict.fromkeys(labels):
            for split in dict.fromkeys([splits.iloc[0], splits.iloc[-1]]):
                runs = here[(here["label"] == label) & (here["split"] == split)]
                found += [Path(path) for path in runs.sort_values("seed")["path"][:1]]
    return [run for run in found if (run / weights.RUN).is_file()
            or ((spec := RunSpec.read(run)) is not None and Finished(run, spec).frozen_at_hand)]

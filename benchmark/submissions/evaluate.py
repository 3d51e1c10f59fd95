"""Scores embeddings made by anyone's code on splits of a ladder, and writes records that are marked as submitted."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmark import datasets, ladders
from benchmark.data.task import Side
from benchmark.datasets import DatasetIndex
from benchmark.ladders import rungs
from benchmark.runs import recording
from benchmark.submissions import card as cards
from benchmark.submissions import reading
from benchmark.submissions.reading import Submission
from benchmark.submissions.submitted import facts
from benchmark.utils import provenance
from benchmark.utils.devices import best_device
from benchmark.utils.errors import UserError
from benchmark.utils.files import whole
from benchmark.utils.workspace import Workspace
from reports import records
from splits.manifest import Ladder, Split, digest

if TYPE_CHECKING:  # it brings torch along, which takes seconds: what is refused is refused before
    from benchmark.runs.scoring import Score

EMBEDDINGS = "embeddings.npy"
"""Those of the test images, beside a record, where they were asked to be kept."""


@dataclass(frozen=True)
class Evaluation:
    """The result: the record's path, its scores, and notes for the author of the embeddings."""

    path: Path
    scores: dict[str, float]
    notes: list[str]
    domains: dict[str, dict[str, float]]
    """Of a union: the scores of each member alone."""
    harmonic: dict[str, float]
    """Of a union: the harmonic mean of its members' scores."""
    split: int = 0
    seed: int = 0


@dataclass(frozen=True)
class _Scored:
    """A split's scores before anything is written."""

    result: Score
    scores: dict[str, float]
    notes: list[str]
    facts: dict[str, Any]
    folder: Path
    table: np.ndarray
    sent: str


def evaluate_ladder(workspace: Workspace, *, embeddings: str, dataset: str, split: str = "all",
                    seeds: Sequence[int] = (0,), name: str | None = None, ids: str | Path | None = None,
                    backbone: str | None = None, cluster: bool = False, device: str | None = None,
                    card: Path | None = None, keep: bool = False) -> list[Evaluation]:
    """Scores embeddings on splits of a ladder, for one seed or several; all records are written or none.

    Every test image of a split must be there once. Other images of the dataset may be there too; if all training
    images are, the structure of the training embeddings is recorded as well.

    Args:
        embeddings: the file; `{split}` and `{seed}` in its name stand for the number of each. A name without
            `{split}` is one file for all images, of which each split takes its own.
        split: numbers and ranges of rungs, `default`, or `all`.
        name: what to call the method [default: that of the card, else of the file].
        ids: file of image paths, may hold `{split}` and `{seed}` as well.
        backbone: to show in reports [default: that of the card].
        cluster: also NMI and F1 of k-means.
        card: file that says what was submitted, see `card.KEYS`.
        keep: keep the embeddings of the test images beside each record.
    """
    unknown = re.search(r"\{(?!(?:split|seed)\})[^{}]*\}", Path(embeddings).name)
    if unknown and not Path(embeddings).exists():
        raise UserError(f"--embeddings {embeddings}: {unknown[0]} stands for nothing; {{split}} and {{seed}} stand for "
                        "the numbers of each split and seed")
    told = cards.read(card) if card is not None else None
    plain = Path(embeddings.replace("{split}", "").replace("{seed}", "")).stem.strip("-_.")
    name = cards.name(name or (told["method"] if told else plain))
    if told and told["method"] != name:
        raise UserError(f"the card {card} is of '{told['method']}', not of '{name}'; leave --name out, or give the "
                        "card of this method")
    if len(seeds) > 1 and "{seed}" not in embeddings:
        raise UserError("several seeds need a file each: write {seed} where its number stands, as in mine-{seed}.npy")
    dataset = datasets.resolved(dataset, workspace.splits)
    index = datasets.load(dataset, workspace.data)
    ladder = ladders.load(workspace, dataset, index, default_only=split == "default")
    chosen = rungs.chosen(split, ladder, option="--split")
    files = {(seed, rung.id): _filled(embeddings, rung.id, seed) for seed in seeds for rung in chosen}
    if lacking := sorted({file for file in files.values() if not Path(file).exists()}):
        raise UserError(f"there is no file {', '.join(lacking[:3])}{' ...' * (len(lacking) > 3)}; --embeddings names a "
                        "file, in which {split} and {seed} stand for the numbers of each split and seed; --split ID "
                        "scores one split alone")
    from tqdm import tqdm

    told_facts = {"card": told} if told else {}
    scored = []
    read: dict[tuple[str, str], Submission] = {}
    for seed, rung in tqdm([(seed, rung) for seed in seeds for rung in chosen], desc=f"scoring {name}", unit="split",
                           disable=None):
        key = (files[seed, rung.id], _filled(str(ids), rung.id, seed) if ids else "")
        if key not in read:
            read = {key: reading.read(Path(key[0]), Path(key[1]) if ids else None)}
        scored.append(_score(workspace, index, ladder, rung, read[key], name=name, seed=seed, cluster=cluster,
                             backbone=backbone or (told["backbone"] if told else "not stated"), device=device))
    from benchmark.metrics.clustering import KMEANS

    return [_written(one, keep, **told_facts, kmeans=KMEANS if cluster else None) for one in scored]


def _filled(text: str, split: int, seed: int) -> str:
    return text.replace("{split}", str(split)).replace("{seed}", str(seed))


def _score(workspace: Workspace, index: DatasetIndex, ladder: Ladder, rung: Split, sent: Submission, *, name: str,
           seed: int, backbone: str, cluster: bool, device: str | None) -> _Scored:
    """The scores of one split and the facts of its record."""
    import torch

    from benchmark.metrics import clustering, operating_points, structure
    from benchmark.runs.scoring import score

    device = best_device(device)
    began = time.perf_counter()
    sides = {part: Side.of(index, classes) for part, classes in (("train", rung.train), ("test", rung.test))}
    paths = {part: [index.paths[i] for i in side.ids] for part, side in sides.items()}
    table = reading.align(sent, paths["test"], index.paths, f"split {rung.id}")
    notes = reading.check(table, paths["test"])
    parts = {"test": torch.from_numpy(table).to(device)}
    there = set(sent.ids)
    covered = len(there.intersection(paths["train"]))
    if covered == len(paths["train"]):
        seen = reading.align(sent, paths["train"], index.paths)
        notes += [f"training images: {note}" for note in reading.check(seen, paths["train"])]
        parts["train"] = torch.from_numpy(seen).to(device)
    elif covered:
        notes.append(f"{covered} of {len(paths['train'])} training images: training structure not measured")
    if idle := len(there.difference(paths["train"], paths["test"])):
        notes.append(f"{idle} of {len(there)} embeddings are of images that split {rung.id} does not use")

    result = score(sides["test"], parts["test"], index.domain_names)
    if not result.queries.counted.any():
        raise UserError(f"split {rung.id}: {sides['test'].unmatched}; nothing can be measured")
    notes += [f"{member}: no query has an image to find, so it has no scores and the union no harmonic mean"
              for member, own in result.domains.items() if not own]
    scores = dict(result.scores)
    if cluster:
        scores |= clustering.nmi_f1(parts["test"], sides["test"].labels, seed)
    identity = digest({"dataset": index.hash, "split": rung.hash, "name": name, "seed": seed, "embeddings": sent.hash})
    folder = records.run_folder(workspace.runs, index.name, rung.id, name, seed, identity)
    return _Scored(result, scores, notes, {
        **facts(name, seed, rung, ladder, index.hash, identity=identity, backbone=backbone, papers=[],
                summary=f"embeddings of {table.shape[1]} dimensions, submitted"),
        "scores": {"last": scores},
        "structure": {part: structure.with_spectra(x, sides[part].labels) for part, x in parts.items()},
        "thresholds": operating_points.of_run(parts["test"], sides["test"].labels),
        "cost": {"seconds": time.perf_counter() - began, "device": provenance.device_name(device)},
    }, folder, table, sent.hash)


def _written(one: _Scored, keep: bool, **origin: Any) -> Evaluation:
    from benchmark.metrics import union

    one.folder.mkdir(parents=True, exist_ok=True)
    if keep:
        with whole(one.folder / EMBEDDINGS) as part, open(part, "wb") as file:
            np.save(file, one.table)
    path = recording.write(one.folder, one.result, one.facts, embeddings=one.sent, **origin)
    return Evaluation(path, one.scores, one.notes, one.result.domains, union.harmonic(one.result.domains),
                      one.facts["split"]["id"], one.facts["seed"])


def summary(results: Sequence[Evaluation], measures: Sequence[str]) -> Iterator[str]:
    """Scores of several splits and seeds as lines, in percent."""
    yield "split  seed" + "".join(f"{measure:>13}" for measure in measures)
    for one in results:
        yield f"{one.split:5}  {one.seed:4}" + "".join(
            f"{100 * one.scores[measure]:13.2f}" if measure in one.scores else f"{'–':>13}" for measure in measures)

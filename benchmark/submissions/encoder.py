"""Anything with `encode(images) -> array` on a ladder, from Python: every image is encoded once, every rung scored.

    import oodml
    class Encoder:
        def encode(self, images):            # PIL images, RGB, the shorter side at most 256 pixels
            return my_network(my_transform(images))
    print(oodml.evaluate(Encoder(), "cub@v1"))
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image

from benchmark import datasets, ladders
from benchmark.data.store import ImageStore, open_store
from benchmark.data.task import Side
from benchmark.datasets import DatasetIndex
from benchmark.ladders import pinned, rungs
from benchmark.metrics import operating_points
from benchmark.runs.scoring import score
from benchmark.submissions import card as cards
from benchmark.submissions.evaluate import Evaluation, evaluate_ladder
from benchmark.utils.children import own_children
from benchmark.utils.devices import best_device
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from reports import records
from reports.aggregate import ags
from reports.storage.operating_points import LEVELS, RATES, rate_at
from splits.manifest import Ladder

SHOWN = ("recall@1", "map@r", "map@1000")
"""Measures that are printed."""


class Encoder(Protocol):
    """What is scored."""

    def encode(self, images: Sequence[Image.Image]) -> Any:
        """One row of numbers an image: an array, a tensor or lists."""


@dataclass(frozen=True)
class LadderScores:
    """What an encoder reaches on the rungs of a ladder."""

    dataset: str
    frd: Mapping[int, float | None]
    """Distance of each rung that was scored, nearest first."""
    scores: Mapping[int, dict[str, float]]
    """Every measure, as a fraction of 1."""
    ags: Mapping[str, float]
    """Of each measure the aggregated generalisation score; empty unless all rungs were scored."""
    thresholds: Mapping[int, dict[str, Any]]
    """What a record keeps of all pairs, see `benchmark.metrics.operating_points.survey`."""
    records: tuple[Path, ...] = ()

    def drift(self, rate: float = RATES[0]) -> dict[int, tuple[float, float]]:
        """False accepts and false rejects on each rung at the threshold that the nearest fixes at this rate."""
        known = {split: kept for split, kept in self.thresholds.items() if "negative" in kept}
        if rate not in LEVELS:
            raise UserError(f"thresholds are kept at rates such as {' and '.join(map(str, RATES))}, not {rate:g}")
        fixed = next((kept["negative"][LEVELS.index(rate)] for kept in known.values()), 0.0)
        return {split: (rate_at(fixed, kept["negative"], accepts=True), rate_at(fixed, kept["positive"], accepts=False))
                for split, kept in known.items()}

    def __str__(self) -> str:
        rows: list[list[str]] = [["split", "distance", *SHOWN]]
        for split, scores in self.scores.items():
            frd = self.frd[split]
            rows.append([str(split), "-" if frd is None else f"{frd:.2f}"])
            rows[-1] += [f"{100 * scores[key]:.2f}" for key in SHOWN]
        if self.ags:
            rows.append(["AGS", "", *(f"{100 * self.ags[key]:.2f}" for key in SHOWN)])
        return "\n".join([self.dataset, *("  ".join(f"{cell:>8}" for cell in row) for row in rows)])


def evaluate(encoder: Encoder, ladder: str, *, splits: str = "all", batch: int = 64, record: str | None = None,
             work: str | Path | None = None, data: str | Path | None = None, device: str | None = None) -> LadderScores:
    """Scores of an encoder on the ladder of a dataset; every test image is encoded once, whatever rungs it is on.

    Args:
        encoder: has `encode(images)`, called with at most `batch` PIL images.
        ladder: a dataset whose ladder was built or imported (`cub`, `folder:PATH`), or a pinned ladder (`cub@v1`).
        splits: numbers and ranges, `default` or `all`.
        record: a name under which the scores are recorded as a submission, for the leaderboard.
        work, data: folders, as for the command `oodml`.
        device: where the scores are computed [default: the GPU where there is one].
    """
    workspace = Workspace.at(work, data).writable()
    index, found = _opened(ladder, workspace, default_only=splits == "default")
    if record is not None:
        cards.name(record, "record")  # before hours of encoding
    if batch < 1:
        raise UserError(f"batch={batch}: at least one image at a time")
    chosen = sorted(rungs.chosen(splits, found), key=lambda split: (split.frd is None, split.frd, split.id))
    sides = {split.id: Side.of(index, split.test) for split in chosen}
    ids = np.unique(np.concatenate([side.ids for side in sides.values()]))
    with own_children():  # a script without a guard must not begin again in each process that decodes
        store = open_store(index, workspace.cache)
    table = encode(encoder, index, store, ids, batch)
    scores, kept, paths = {}, {}, {}
    if record is None:
        where = torch.from_numpy(table).to(best_device(device))
        for number, side in sides.items():
            embeddings = where[torch.from_numpy(np.searchsorted(ids, side.ids)).to(where.device)]
            scores[number] = score(side, embeddings, index.domain_names).scores
            kept[number] = operating_points.of_run(embeddings, side.labels)
    else:
        for one in _recorded(record, table, [index.paths[i] for i in ids], index, splits, workspace, device):
            scores[one.split], paths[one.split] = one.scores, one.path
            kept[one.split] = records.read(one.path.parent)["thresholds"]
    distances = {split.id: split.frd for split in chosen}
    known = [frd for frd in distances.values() if frd is not None]
    whole = len(known) == len(found.splits) > 1
    means = {metric: ags(known, [scores[i][metric] for i in distances]) for metric in next(iter(scores.values()))
             } if whole else {}
    return LadderScores(index.name, distances, {i: scores[i] for i in distances}, means,
                        {i: kept[i] for i in distances}, tuple(paths[i] for i in distances if paths))


def encode(encoder: Encoder, index: DatasetIndex, store: ImageStore, ids: np.ndarray, batch: int) -> np.ndarray:
    """The embeddings of some images, checked: one row an image, of one width, all numbers finite and some not zero."""
    from tqdm import tqdm

    if not callable(getattr(encoder, "encode", None)):
        raise UserError(f"a {type(encoder).__name__} has no encode(images); give an object that has it")
    parts: list[np.ndarray] = []
    for start in tqdm(range(0, len(ids), batch), desc=f"encoding {index.name}", unit="batch", disable=None):
        some = ids[start:start + batch]
        made = encoder.encode([Image.fromarray(store.image(int(i))) for i in some])
        made = made.detach().float().cpu().numpy() if isinstance(made, torch.Tensor) else _table(made)
        if made.ndim != 2 or len(made) != len(some) or made.dtype.kind not in "fiu":
            raise UserError(f"encode gave {made.dtype} of shape {made.shape} for {len(some)} images; one row of "
                            "numbers an image is wanted")
        if parts and made.shape[1] != parts[0].shape[1]:
            raise UserError(f"encode gave {made.shape[1]} numbers an image, for the first images "
                            f"{parts[0].shape[1]}; all must have as many")
        with np.errstate(over="ignore", under="ignore"):
            made = made.astype(np.float32)
        for what, bad in (("NaN or infinite numbers", ~np.isfinite(made).all(axis=1)),
                          ("zeros alone", ~made.any(axis=1))):
            if bad.any():
                raise UserError(f"encode gave {what} for image {index.paths[some[np.argmax(bad)]]} of {index.name} "
                                f"({bad.sum()} of {len(some)} in this batch, in single precision); check the network's "
                                "weights and its input")
        parts.append(made)
    return np.concatenate(parts)


def _table(made: Any) -> np.ndarray:
    try:
        return np.asarray(made)
    except ValueError as error:  # rows of different lengths
        raise UserError(f"encode gave what is no table ({error}); one row of numbers an image is wanted") from None


def _opened(name: str, workspace: Workspace, default_only: bool) -> tuple[DatasetIndex, Ladder]:
    """The dataset and its ladder: a pinned one by its name, else the one that lies in the working folder."""
    if "@" in name and ":" not in name:
        return pinned.use(name, workspace)
    name = datasets.resolved(name, workspace.splits)
    index = datasets.load(name, workspace.data)
    return index, ladders.load(workspace, name, index, default_only)


def _recorded(name: str, table: np.ndarray, paths: list[str], index: DatasetIndex, splits: str,
              workspace: Workspace, device: str | None) -> list[Evaluation]:
    """What a submission of these embeddings reaches on each rung, with its record."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "embeddings.npz"
        np.savez(file, embeddings=table, ids=np.array(paths))
        return evaluate_ladder(workspace, embeddings=str(file), dataset=index.typed, split=splits, name=name,
                               device=device)

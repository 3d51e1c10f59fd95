"""All pairs of a test side in one pass: what a record keeps so that thresholds can be judged later, wherever fixed.

Similarities are counted on a grid of 2^-15, and their table is made once, in blocks, so that 60,502 images stay within
2 GB. `benchmark.metrics.thresholds` has the measures that are computed from the counts.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmark.metrics import search
from benchmark.metrics.thresholds import Pairs, accepted_recall, auroc, opis_of, unknown_classes
from benchmark.utils.errors import UserError
from reports.storage.operating_points import LEVELS, RATES

HALF = 2**15
"""Steps of the grid in a similarity of 1."""
SAMPLE = 2048
"""Images from whose pairs the range of OPIS is taken where there are more."""
POINTS = 21
"""Thresholds in the range of OPIS."""


def survey(embeddings: Any, labels: Any, *, fixed: Mapping[str, float] | None = None,
           chunk: int | None = None) -> dict[str, Any]:
    """What a record keeps of all pairs of images, whatever their roles; a UserError where no pair is positive.

        FAR(t) = |{y_i != y_j, s_ij >= t}| / |negatives|,   FRR(t) = |{y_i = y_j, s_ij < t}| / |positives|
        negative_f = min {t : FAR(t) <= f},   positive_f = max {t : FRR(t) <= f},   TAR at f = 1 - FRR(negative_f)
        R-AUROC = P(s_right > s_wrong) + P(s_right = s_wrong) / 2

    with t on the grid, f of LEVELS, and s_right, s_wrong the similarities of the nearest neighbours of a query whose
    nearest is of its class and of one whose nearest is not; nan where all are right or all are wrong.

    Args:
        embeddings: one row an image.
        labels: the class of each.
        fixed: thresholds from elsewhere (of validation classes), by the false accept rate they were fixed at.
        chunk: rows of the table of similarities at once [default: as many as fit a fixed amount of memory].

    Returns:
        `positives` and `negatives`, the numbers of pairs; `positive` and `negative`, thresholds at the LEVELS;
        `tar` at the false accept RATES; `opis`, `r_auroc`, `recall@1` of known and `open_recall@1` at the RATES when
        half of the classes are unknown; `validation`: what the `fixed` thresholds accept and reject wrongly.
    """
    pairs = _sorted(Pairs(embeddings, labels))
    pairs.need_both()
    memory = 2**25 if pairs.x.device.type == "cpu" else 2**27  # of a table in bytes; several are there at a time
    chunk = chunk or max(1, memory // (4 * len(pairs.x)))
    unknown = unknown_classes(len(pairs.names))
    positive, negative, by_class, nearest = _count(pairs, _opis_edges(pairs), unknown, chunk)
    found: dict[str, Any] = {
        "positives": pairs.positives, "negatives": pairs.negatives,
        "positive": _thresholds(positive, rejects=True), "negative": _thresholds(negative, rejects=False)}
    at = dict(zip(LEVELS, found["negative"]))
    found["tar"] = {f"{rate:g}": 1 - _share(positive, at[rate], below=True) for rate in RATES}
    found["opis"] = opis_of(by_class, pairs)
    found |= _neighbours(pairs, nearest, unknown)
    if fixed:
        found["validation"] = {rate: {"threshold": value, "false_accepts": _share(negative, value),
                                      "false_rejects": _share(positive, value, below=True)}
                               for rate, value in fixed.items()}
    return found


def of_run(embeddings: Tensor, labels: np.ndarray, held_out: tuple[Tensor, np.ndarray] | None = None) -> dict[str, Any]:
    """What the record of a run keeps: the survey of its test side, with thresholds fixed on held-out classes if any.

    Where there is no pair to measure, `note` says why and nothing else is lost.
    """
    fixed = None
    if held_out is not None:
        with contextlib.suppress(UserError):  # too few held-out classes to fix a threshold on
            fixed = fixed_thresholds(survey(*held_out))
    try:
        return survey(embeddings, labels, fixed=fixed)
    except UserError as error:
        return {"note": str(error)}


def fixed_thresholds(found: Mapping[str, Any]) -> dict[str, float]:
    """The thresholds of a survey at the RATES, to be tried elsewhere."""
    return {f"{rate:g}": found["negative"][LEVELS.index(rate)] for rate in RATES}


def _sorted(pairs: Pairs) -> Pairs:
    """The same images class by class, so that a block of rows holds few classes."""
    order = torch.argsort(pairs.y, stable=True)
    pairs.x, pairs.y = pairs.x[order], pairs.y[order]
    return pairs


def _bins(similarities: Tensor) -> Tensor:
    """The step of the grid, 0 .. 2 HALF, that each similarity has reached."""
    return similarities.add(1).mul_(HALF).clamp_(0, 2 * HALF).to(torch.int32)


def _opis_edges(pairs: Pairs) -> Tensor:
    """The thresholds of OPIS as steps of the grid: in equal steps between false accept rates of 1e-1 and 1e-2.

    Of more images than SAMPLE some tell, evenly spaced over the classes.
    """
    some = torch.linspace(0, len(pairs.x) - 1, min(SAMPLE, len(pairs.x)), device=pairs.x.device).long()
    with search.full_precision(pairs.x.device.type):
        table = pairs.x[some] @ pairs.x[some].T
    counts = torch.bincount(_bins(table)[pairs.y[some, None] != pairs.y[some]], minlength=2 * HALF + 1).cpu().numpy()
    ends = [_thresholds(counts, rejects=False)[LEVELS.index(rate)] for rate in (1e-1, 1e-2)]
    return torch.from_numpy(np.ceil((np.linspace(ends[0], ends[1], POINTS) + 1) * HALF)).to(pairs.x.device)


def _count(pairs: Pairs, edges: Tensor, unknown: np.ndarray, chunk: int,
           ) -> tuple[np.ndarray, np.ndarray, Any, Tensor]:
    """One pass over the whole table of similarities, `chunk` rows at once.

    Returns:
        counts of the positive and of the negative pairs on the grid; accepted positive and negative pairs by (threshold
        of OPIS, class); and for each image the similarity of its nearest image of its own class, of another class, and
        of another class that is not unknown.
    """
    device, steps = pairs.x.device, 2 * HALF + 1
    grid = torch.zeros(2, steps, dtype=torch.int64, device=device)
    reached = torch.bucketize(torch.arange(steps, device=device), edges.contiguous(), right=True).to(torch.int32)
    by_class = torch.zeros(2, len(pairs.sizes), POINTS + 1, dtype=torch.int64, device=device)
    nearest = torch.empty(3, len(pairs.x), device=device)
    hidden = torch.from_numpy(unknown).to(device)[pairs.y.long()]
    for start in range(0, len(pairs.x), chunk):
        rows = slice(start, min(start + chunk, len(pairs.x)))
        with search.full_precision(device.type):
            table = pairs.x[rows] @ pairs.x.T
        itself = torch.arange(rows.start, rows.stop, device=device)
        same = pairs.y[rows, None] == pairs.y
        inside = same.flatten().nonzero()[:, 0]
        step = _bins(table)
        low, high = int(pairs.y[rows.start]), int(pairs.y[rows.stop - 1]) + 1
        place = reached.take(step.long()) + ((pairs.y[rows, None] - low) * (POINTS + 1)).to(torch.int32)
        width = (high - low) * (POINTS + 1)
        # an image is no pair with itself; the negative pairs are all others but those of one class
        own, at_own = (every.gather(1, itself[:, None])[:, 0] for every in (step, place))
        for counts, values, alone, size in ((grid, step, own, steps), (by_class.view(2, -1), place, at_own, width)):
            begin = 0 if size == steps else low * (POINTS + 1)
            among = torch.bincount(values.flatten()[inside], minlength=size)
            counts[0, begin:begin + size] += among - torch.bincount(alone, minlength=size)
            counts[1, begin:begin + size] += torch.bincount(values.flatten(), minlength=size) - among
        table.scatter_(1, itself[:, None], -torch.inf)
        nearest[0, rows] = table.masked_fill(~same, -torch.inf).amax(1)
        table.masked_fill_(same, -torch.inf)
        nearest[1, rows] = table.amax(1)
        nearest[2, rows] = table.masked_fill_(hidden, -torch.inf).amax(1)
    positive, negative = (counts.cpu().numpy() // 2 for counts in grid)  # every pair stands in the table twice
    # accepted by a threshold is what has reached its edge
    accepted = by_class.flip(2).cumsum(2).flip(2)[:, :, 1:].transpose(1, 2).cpu().numpy()
    return positive, negative, accepted, nearest


def _thresholds(counts: np.ndarray, rejects: bool) -> list[float]:
    """For every level the lowest threshold on the grid that accepts no more of these pairs, or the highest that rejects
    no more."""
    below = np.concatenate([[0], np.cumsum(counts)])  # what the threshold at each step rejects, and one beyond the last
    allowed = np.floor(np.array(LEVELS) * below[-1] + 1e-9)
    if rejects:
        step = np.searchsorted(below, allowed, side="right") - 1
    else:
        step = np.searchsorted(below, below[-1] - allowed, side="left")
    return [round(float(at) / HALF - 1, 6) for at in step]


def _share(counts: np.ndarray, threshold: float, below: bool = False) -> float:
    """The share of these pairs that a threshold accepts, or rejects."""
    # thresholds are kept to six digits, which moves them by up to a sixtieth of a step
    step = max(0, math.ceil(round((threshold + 1) * HALF, 1)))
    rejected = int(counts[:step].sum()) / int(counts.sum())
    return rejected if below else 1 - rejected


def _neighbours(pairs: Pairs, nearest: Tensor, unknown: np.ndarray) -> dict[str, Any]:
    """R-AUROC and open-set recall from each image's nearest of its class, of another, and of another known class."""
    mine, others, known_others = nearest.cpu().numpy()
    codes = pairs.y.cpu().numpy()
    known = ~unknown[codes] & (pairs.sizes[codes] > 1)
    right, values = (mine > known_others)[known], np.maximum(mine, known_others)[known]
    strangers = np.sort(known_others[unknown[codes]])[::-1]
    return {"r_auroc": auroc(np.maximum(mine, others), mine > others),
            "recall@1": float(right.mean()) if len(right) else math.nan,
            "open_recall@1": {f"{rate:g}": accepted_recall(right, values, strangers, rate) for rate in RATES}}

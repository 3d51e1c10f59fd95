"""One similarity threshold for all pairs of images: what it accepts and rejects, here and where it was not fixed.

A pair is accepted if its cosine similarity reaches the threshold. Everything is counted over all unordered pairs, in
blocks of rows so that memory stays bounded, and exactly: a threshold lies at a similarity of the data, not of a bin.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmark.metrics import search
from benchmark.metrics.retrieval import as_embeddings, as_labels, same_length, unit
from benchmark.utils.errors import UserError
from reports.storage.operating_points import RATES

HALF = 2**16
"""Bins of the upper and of the lower half of a similarity's 32 bits."""
SAMPLE = 2**18
"""Pairs from which a similarity is guessed that so many of all reach."""


class Rates(NamedTuple):
    """Which share of the negative pairs a threshold accepts, and which share of the positive pairs it rejects."""

    false_accepts: float
    false_rejects: float


class Block(NamedTuple):
    """Rows of the table of similarities: which pairs of it count, and which of those are of one class."""

    rows: slice
    similarities: Tensor
    positive: Tensor
    negative: Tensor


class Pairs:
    """All pairs of a set of labelled embeddings, a block of rows at a time.

    Args:
        embeddings: one row an image, an array or a tensor on any device, of any length.
        labels: the class of each row, numbers or names.
        chunk: rows at once [default: as many as fit a fixed amount of memory].
    """

    def __init__(self, embeddings: Any, labels: Any, chunk: int | None = None) -> None:
        self.x = unit(as_embeddings(embeddings))
        names = as_labels(labels)
        same_length(self.x, names)
        self.names, codes = np.unique(names, return_inverse=True)
        self.y = torch.from_numpy(codes.astype(np.int32)).to(self.x.device)
        self.sizes = np.bincount(codes, minlength=len(self.names))
        memory = 2**26 if self.x.device.type == "cpu" else 2**28
        self.chunk = chunk or max(1, memory // (4 * max(1, len(self.x))))
        self.positives = int((self.sizes * (self.sizes - 1) // 2).sum())
        self.negatives = len(self.x) * (len(self.x) - 1) // 2 - self.positives

    def need_both(self) -> None:
        """A UserError unless there is a positive and a negative pair."""
        if not self.positives:
            raise UserError(f"no two of the {len(self.x)} images are of one class, so that no threshold has false "
                            "rejects; give labels by which some class has two images")
        if not self.negatives:
            raise UserError(f"all {len(self.x)} images are of one class, so that no threshold has false accepts; "
                            "give images of two classes")

    def blocks(self, whole: bool = False) -> Iterator[Block]:
        """Rows against the images from their first one on, every pair once; `whole`: against all, every pair twice."""
        n = len(self.x)
        place = torch.arange(n, device=self.x.device)
        for start in range(0, n, self.chunk):
            rows, left = slice(start, min(start + self.chunk, n)), 0 if whole else start
            with search.full_precision(self.x.device.type):
                table = self.x[rows] @ self.x[left:].T + 0.0  # a negative zero becomes zero
            counts = place[rows, None] != place[left:] if whole else place[rows, None] < place[left:]
            same = self.y[rows, None] == self.y[left:]
            yield Block(rows, table, same & counts, ~same & counts)

    def highest_negatives(self, places: Sequence[int]) -> list[float]:
        """The similarities of the negative pairs at these places (from 0, highest first), by two passes over the bits.

        The first counts the negatives by the upper half of an integer that is ordered like the similarity, the second
        those with the right upper half by the lower one. Only what lies above a guess from some pairs is counted, or
        all, where the guess was too high.
        """
        for floor in (self._guess(4 * max(places)), -math.inf):
            upper = torch.zeros(HALF, dtype=torch.int64, device=self.x.device)
            for block in self.blocks():
                high = block.similarities[(block.similarities >= floor) & block.negative]
                upper += torch.bincount((ordered(high) >> 16) + HALF // 2, minlength=HALF)
            if int(upper.sum()) > max(places):
                break
        above = upper.flip(0).cumsum(0).flip(0).cpu().numpy()
        # the last bin that this place is still within
        chosen = [int(np.flatnonzero(above > place)[-1]) for place in places]
        lower = {at: torch.zeros(HALF, dtype=torch.int64, device=self.x.device) for at in chosen}
        for block in self.blocks():
            keys = ordered(block.similarities)
            for at, counts in lower.items():
                inside = keys[((keys >> 16) == at - HALF // 2) & block.negative]
                counts += torch.bincount(inside & (HALF - 1), minlength=HALF)
        values = []
        for at, place in zip(chosen, places):
            rest = place - (int(above[at + 1]) if at + 1 < HALF else 0)
            within = lower[at].flip(0).cumsum(0).flip(0).cpu().numpy()
            key = (at - HALF // 2) * HALF + int(np.flatnonzero(within > rest)[-1])
            values.append(similarity_of(key))
        return values

    def _guess(self, count: int) -> float:
        """A similarity that about `count` of all pairs reach, from a sample of them."""
        wanted = count * SAMPLE // max(1, self.negatives + self.positives) + 64
        if wanted >= SAMPLE:
            return -math.inf
        random = torch.Generator().manual_seed(0)
        first, second = torch.randint(len(self.x), (2, SAMPLE), generator=random).to(self.x.device)
        return float((self.x[first] * self.x[second]).sum(1).topk(wanted).values[-1])


def ordered(similarities: Tensor) -> Tensor:
    """float32 as int32 in the same order: the bits, with those behind the sign turned over where it is negative."""
    bits = similarities.view(torch.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def similarity_of(key: int) -> float:
    """The float32 of such an integer.

    >>> [similarity_of(int(key)) for key in ordered(torch.tensor([0.25, 0.0, -0.5]))]
    [0.25, 0.0, -0.5]
    """
    bits = key ^ 0x7FFFFFFF if key < 0 else key
    return float(np.array([bits], dtype=np.int32).view(np.float32)[0])


def above(value: float) -> float:
    """The next float32."""
    return float(np.nextafter(np.float32(value), np.float32(np.inf)))


def share_of(rate: float, count: int) -> int:
    """The most of `count` that are no larger share than `rate`: 29 of 100 for 0.29, though 0.29 * 100 is less."""
    return math.floor(rate * count + 1e-9)


def thresholds_at(embeddings: Any, labels: Any, rates: Sequence[float] = RATES, *, chunk: int | None = None,
                  ) -> list[float]:
    """For each false accept rate the lowest threshold that accepts no larger share of the negative pairs.

        t(f) = min {t : |{(i,j) : y_i != y_j, s_ij >= t}| <= f |negatives|}

    >>> import math
    >>> x = [[math.cos(a), math.sin(a)] for a in (0.0, 0.1, 0.2, 1.5)]
    >>> [round(t, 3) for t in thresholds_at(x, [0, 0, 1, 1], (0.25, 0.5))]
    [0.98, 0.17]
    """
    pairs = Pairs(embeddings, labels, chunk)
    pairs.need_both()
    allowed = [share_of(rate, pairs.negatives) for rate in rates]
    asked = [count for count in allowed if count < pairs.negatives]
    values = dict(zip(asked, pairs.highest_negatives(asked))) if asked else {}
    return [above(values[count]) if count in values else -math.inf for count in allowed]


def error_rates(embeddings: Any, labels: Any, thresholds: Sequence[float], *, chunk: int | None = None) -> list[Rates]:
    """False accepts and false rejects of thresholds, wherever they were fixed: their drift, from split to split.

        FAR(t) = |{y_i != y_j, s_ij >= t}| / |negatives|,   FRR(t) = |{y_i = y_j, s_ij < t}| / |positives|
    """
    pairs = Pairs(embeddings, labels, chunk)
    pairs.need_both()
    accepted = torch.zeros(len(thresholds), 2, dtype=torch.int64, device=pairs.x.device)
    for block in pairs.blocks():
        positive = block.similarities[block.positive]
        negative = block.similarities.masked_fill_(~block.negative, -torch.inf)
        for at, threshold in enumerate(thresholds):
            accepted[at, 0] += (positive >= threshold).sum()
            accepted[at, 1] += (negative >= max(threshold, -2.0)).sum()
    return [Rates(false / pairs.negatives, 1 - true / pairs.positives) for true, false in accepted.tolist()]


def tar_at_far(embeddings: Any, labels: Any, rates: Sequence[float] = RATES, *,
               chunk: int | None = None) -> list[float]:
    """The share of the positive pairs that is accepted at each false accept rate of the same data."""
    thresholds = thresholds_at(embeddings, labels, rates, chunk=chunk)
    return [1 - rate.false_rejects for rate in error_rates(embeddings, labels, thresholds, chunk=chunk)]


def opis(embeddings: Any, labels: Any, *, between: tuple[float, float] = (1e-1, 1e-2), points: int = 21,
         chunk: int | None = None) -> float:
    """How much the operating points of classes differ: operating-point-inconsistency score.

        OPIS = mean_t mean_c (U_c(t) - mean_c U_c(t))^2,   U = 2 (1 - FAR)(1 - FRR) / ((1 - FAR) + (1 - FRR))

    U_c is the harmonic mean of specificity and sensitivity of a threshold over the pairs with an image of class c.
    After Zhang et al., ICLR 2024, with the utility as we read it: its variance over classes in a range that runs in
    equal steps over the thresholds at the false accept rates `between`. Classes with one image are left out.
    """
    first, last = thresholds_at(embeddings, labels, between, chunk=chunk)
    thresholds = np.linspace(first, last, points)
    pairs = Pairs(embeddings, labels, chunk)
    accepted = torch.zeros(2, points, len(pairs.sizes), dtype=torch.int64, device=pairs.x.device)
    for block in pairs.blocks(whole=True):
        classes = pairs.y[block.rows].long()
        for at, threshold in enumerate(thresholds.tolist()):
            over = block.similarities >= threshold
            for kind, mask in enumerate((block.positive, block.negative)):
                accepted[kind, at].index_add_(0, classes, (over & mask).sum(1))
    return opis_of(accepted.cpu().numpy(), pairs)


def opis_of(accepted: np.ndarray, pairs: Pairs) -> float:
    """OPIS from the accepted pairs, (of one class, of two) x thresholds x class that an image is of."""
    several = pairs.sizes > 1
    sizes, (positive, negative) = pairs.sizes[several].astype(np.float64), accepted[:, :, several]
    sensitivity = positive / (sizes * (sizes - 1))
    specificity = 1 - negative / (sizes * (len(pairs.x) - sizes))
    with np.errstate(invalid="ignore"):
        utility = np.nan_to_num(2 * sensitivity * specificity / (sensitivity + specificity))
    return float(utility.var(axis=1).mean())


def r_auroc(embeddings: Any, labels: Any, *, chunk: int | None = None) -> float:
    """Whether the similarity of the nearest neighbour tells right neighbours from wrong ones: the area under the ROC.

        R-AUROC = P(s_right > s_wrong) + P(s_right = s_wrong) / 2

    over a query with a right nearest neighbour and one with a wrong; nan where all are right or all are wrong.
    """
    pairs = Pairs(embeddings, labels)
    indices, similarities = search.neighbours(pairs.x, k=1, exclude_self=True, chunk=chunk)
    if not indices.shape[1]:
        return math.nan
    right = (pairs.y[indices[:, 0]] == pairs.y).cpu().numpy()
    return auroc(similarities[:, 0].cpu().numpy(), right)


def auroc(scores: np.ndarray, right: np.ndarray) -> float:
    """The share of pairs (right, wrong) in which the right one scores higher; ties count half."""
    if right.all() or not right.any():
        return math.nan
    wrong = np.sort(scores[~right])
    below = np.searchsorted(wrong, scores[right], "left") + np.searchsorted(wrong, scores[right], "right")
    return float(below.sum() / 2 / right.sum() / len(wrong))


def open_set_recall(embeddings: Any, labels: Any, *, share: float = 0.5, rates: Sequence[float] = RATES, seed: int = 0,
                    chunk: int | None = None) -> dict[str, float]:
    """Recall@1 when some queries have no match in the gallery and must be rejected.

    A share of the classes, drawn from the seed, is taken out of the gallery. At the threshold that lets a given rate of
    their images through, a query of the other classes counts if its nearest neighbour is of its class and accepted.

    Returns:
        `recall@1` of the known queries without a threshold, `open_recall@1@RATE` for every rate, and the number of
        `known` and `unknown` queries. Known classes with one image have no match either and are left out.
    """
    pairs = Pairs(embeddings, labels)
    codes = pairs.y.cpu().numpy()
    unknown = unknown_classes(len(pairs.names), share, seed)[codes]
    known = ~unknown & (pairs.sizes[codes] > 1)
    shown = np.flatnonzero(~unknown)
    gallery = pairs.x[torch.from_numpy(shown).to(pairs.x.device)]
    own = np.full(len(codes), -1)
    own[shown] = np.arange(len(shown))
    indices, similarities = search.neighbours(pairs.x, gallery, 1, exclude_self=torch.from_numpy(own), chunk=chunk)
    nearest, values = codes[shown][indices[:, 0].cpu().numpy()], similarities[:, 0].cpu().numpy()
    right, strangers = nearest[known] == codes[known], np.sort(values[unknown])[::-1]
    scores = {"recall@1": float(right.mean()) if len(right) else math.nan}
    scores |= {f"open_recall@1@{rate:g}": accepted_recall(right, values[known], strangers, rate) for rate in rates}
    return scores | {"known": int(known.sum()), "unknown": int(unknown.sum())}


def unknown_classes(classes: int, share: float = 0.5, seed: int = 0) -> np.ndarray:
    """Which classes are taken out of the gallery, drawn from the seed."""
    count = round(share * classes)
    if not 0 < count < classes:
        raise UserError(f"a share of {share:g} of {classes} classes leaves no known or no unknown class; "
                        "take one strictly between 0 and 1, and more classes")
    return np.isin(np.arange(classes), np.random.default_rng(seed).permutation(classes)[:count])


def accepted_recall(right: np.ndarray, values: np.ndarray, strangers: np.ndarray, rate: float) -> float:
    """The share of known queries that are right and accepted where this rate of the strangers is.

    `values` are the similarities of their nearest neighbours, `strangers` those of the unknown, highest first.
    """
    allowed = share_of(rate, len(strangers))
    accepted = values > strangers[allowed] if allowed < len(strangers) else np.ones(len(right), dtype=bool)
    return float((right & accepted).mean()) if len(right) else math.nan

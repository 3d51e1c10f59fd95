"""Measures of one similarity threshold for all pairs of images, from what `operating_points` counts of the pairs.

A pair is accepted if its cosine similarity reaches the threshold. Pairs are unordered: each counts once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from benchmark.metrics.retrieval import as_embeddings, as_labels, same_length, unit
from benchmark.utils.errors import UserError


class Pairs:
    """All pairs of a set of labelled embeddings: how many are of one class (positive), and how many of two (negative).

    Args:
        embeddings: one row an image, an array or a tensor on any device, of any length.
        labels: the class of each row, numbers or names.
    """

    def __init__(self, embeddings: Any, labels: Any) -> None:
        self.x = unit(as_embeddings(embeddings))
        names = as_labels(labels)
        same_length(self.x, names)
        self.names, codes = np.unique(names, return_inverse=True)
        self.y = torch.from_numpy(codes.astype(np.int32)).to(self.x.device)
        self.sizes = np.bincount(codes, minlength=len(self.names))
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


def share_of(rate: float, count: int) -> int:
    """The most of `count` that are no larger share than `rate`: 29 of 100 for 0.29, though 0.29 * 100 is less."""
    return math.floor(rate * count + 1e-9)


def opis_of(accepted: np.ndarray, pairs: Pairs) -> float:
    """How much the operating points of classes differ: operating-point-inconsistency score.

        OPIS = mean_t mean_c (U_c(t) - mean_c U_c(t))^2,   U = 2 (1 - FAR)(1 - FRR) / ((1 - FAR) + (1 - FRR))

    U_c is the harmonic mean of specificity and sensitivity of a threshold over the pairs with an image of class c.
    After Zhang et al., ICLR 2024, with the utility as we read it: its variance over classes in a range that runs in
    equal steps over the thresholds at two false accept rates. Classes with one image are left out.

    `accepted` are the accepted pairs, (of one class, of two) x thresholds x class that an image is of.
    """
    several = pairs.sizes > 1
    sizes, (positive, negative) = pairs.sizes[several].astype(np.float64), accepted[:, :, several]
    sensitivity = positive / (sizes * (sizes - 1))
    specificity = 1 - negative / (sizes * (len(pairs.x) - sizes))
    with np.errstate(invalid="ignore"):
        utility = np.nan_to_num(2 * sensitivity * specificity / (sensitivity + specificity))
    return float(utility.var(axis=1).mean())


def auroc(scores: np.ndarray, right: np.ndarray) -> float:
    """The share of pairs (right, wrong) in which the right one scores higher; ties count half."""
    if right.all() or not right.any():
        return math.nan
    wrong = np.sort(scores[~right])
    below = np.searchsorted(wrong, scores[right], "left") + np.searchsorted(wrong, scores[right], "right")
    return float(below.sum() / 2 / right.sum() / len(wrong))


def unknown_classes(classes: int) -> np.ndarray:
    """Which half of the classes is taken out of the gallery: the same for every run, so that these can be compared."""
    return np.isin(np.arange(classes), np.random.default_rng(0).permutation(classes)[:round(classes / 2)])


def accepted_recall(right: np.ndarray, values: np.ndarray, strangers: np.ndarray, rate: float) -> float:
    """Recall@1 when some queries have no match in the gallery and must be rejected.

    It is the share of known queries that are right and accepted by the threshold where this rate of the strangers is.
    `values` are the similarities of their nearest neighbours, `strangers` those of the unknown, highest first.
    """
    allowed = share_of(rate, len(strangers))
    accepted = values > strangers[allowed] if allowed < len(strangers) else np.ones(len(right), dtype=bool)
    return float((right & accepted).mean()) if len(right) else math.nan

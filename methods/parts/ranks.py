"""Soft ranks: for each positive pair (a, p), which other images of the batch come before p in the ranking of a."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from methods.parts.miners import masks

ITSELF = "as in evaluation, a query is not in its own retrieval set"

class Rankings(NamedTuple):
    """The ordered positive pairs (a, p) of a batch, m of them, against all its b images k."""

    anchor: Tensor
    partner: Tensor
    gap: Tensor
    """s_ak - s_ap, (m, b): above zero where k comes before p."""
    positive: Tensor
    """Which k are further positives of a, (m, b): neither p nor (unless asked for) a."""
    negative: Tensor
    """Which k are negatives of a, (m, b)."""
    share: Tensor
    """1/|P_a| over the number of anchors, (m,): what a pair counts in a mean over anchors of means over positives."""

    def mean(self, values: Tensor) -> Tensor:
        """1/A sum_a 1/|P_a| sum_p v_ap, over the A anchors with a positive; zero, with a gradient, where none has."""
        return (self.share * values).sum()


def rankings(similarity: Tensor, labels: Tensor, itself: bool = False) -> Rankings:
    """The positive pairs of a batch and what is ranked around them.

    Args:
        similarity: of every two images, (b, b).
        labels: of the images, (b,).
        itself: whether an anchor is ranked among its own positives, as released codes do.

    >>> import torch
    >>> all_pairs = rankings(torch.tensor([[1.0, 0.5, 0.9], [0.5, 1.0, 0.1], [0.9, 0.1, 1.0]]), torch.tensor([0, 0, 1]))
    >>> [[round(gap, 1) for gap in row] for row in all_pairs.gap.tolist()], all_pairs.share.tolist()
    ([[0.5, 0.0, 0.4], [0.0, 0.5, -0.4]], [0.5, 0.5])
    """
    positive, negative = masks(labels)
    if itself:
        positive = ~negative
    anchor, partner = positive.nonzero(as_tuple=True)
    others = positive[anchor].scatter(1, partner[:, None], False)
    count = positive.sum(1)
    share = 1 / (count * (count > 0).sum())[anchor].to(similarity.dtype)
    gap = similarity[anchor] - similarity[anchor, partner][:, None]
    return Rankings(anchor, partner, gap, others, negative[anchor], share)


def count_before(rises: Tensor, mask: Tensor) -> Tensor:
    """How many of the masked images come before p: the sum of a step function of their gaps, or of a smooth one."""
    return (rises * mask).sum(1)

"""Pairs that violate a fixed threshold, which contrastive terms and threshold-consistent margins penalise."""

from __future__ import annotations

from torch import Tensor

from methods.parts.miners import masks
from methods.parts.ranked import mean


def violations(similarity: Tensor, labels: Tensor, above: float, below: float) -> tuple[Tensor, Tensor]:
    """Mean violation of the positive pairs that fall short of one threshold, and of the negatives beyond another.

        1/|active| sum_{(a,p)} [m+ - s_ap]_+,   1/|active| sum_{(a,n)} [s_an - m-]_+

    Args:
        similarity: of every two images, (b, b).
        labels: of the images, (b,).
        above: m+, what positives should reach.
        below: m-, what negatives should not.

    >>> import torch
    >>> violations(torch.tensor([[1.0, 0.4], [0.4, 1.0]]), torch.tensor([0, 0]), 0.9, 0.5)
    (tensor(0.5000), tensor(0.))
    """
    positives, negatives = masks(labels)
    short, far = (above - similarity).relu(), (similarity - below).relu()
    return mean(short, positives & (short > 0)), mean(far, negatives & (far > 0))

"""Tuple miners: which triplets of a batch a ranking objective looks at.

Every miner gives one triplet for each sample of the batch as its anchor, in tensors of fixed size on the
embeddings' device, so that nothing waits for the GPU, and in few operations, since launching one on a GPU takes
longer than such a batch does. An anchor without a positive or without a negative has
`valid` false. Random choices use torch's generator of that device. Written by hand because
pytorch-metric-learning's miners give one triplet for each positive *pair* and draw in Python loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from methods.parts.distances import paired, pairwise, squared


class Triplets(NamedTuple):
    """Positions in the batch; a triplet counts only where `valid`."""

    anchor: Tensor
    positive: Tensor
    negative: Tensor
    valid: Tensor

    def of(self, embeddings: Tensor) -> Tensor:
        """The embeddings of anchors, positives and negatives, (3, t, dim)."""
        return embeddings.index_select(0, torch.cat(self[:3])).unflatten(0, (3, -1))

    def distances(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """d_ap and d_an of every triplet.

        >>> pair = Triplets(torch.tensor([0]), torch.tensor([1]), torch.tensor([2]), torch.tensor([True]))
        >>> pair.distances(torch.tensor([[0.0, 0.0], [0.0, 1.0], [3.0, 4.0]]))
        (tensor([1.]), tensor([5.]))
        """
        chosen = self.of(embeddings)
        d_ap, d_an = paired(chosen[:1], chosen[1:])
        return d_ap, d_an


Miner = Callable[[Tensor, Tensor], Triplets]


def draw(log_weights: Tensor) -> Tensor:
    """One column of each row, with probability proportional to exp(log_weights); -inf is never drawn.

    By the Gumbel trick: argmax_j (log w_j - log E_j) with E_j exponential. A row of -inf gives column 0.
    """
    return (log_weights - torch.empty_like(log_weights).exponential_().log()).argmax(1)


def pick(allowed: Tensor) -> Tensor:
    """One of the allowed columns of each row, all of them equally likely; column 0 where none is."""
    return torch.where(allowed, torch.rand(allowed.shape, device=allowed.device), -1.0).argmax(1)


def masks(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Which pairs (anchor, other) are positive (same class, another image) and which negative.

    >>> positive, negative = masks(torch.tensor([0, 0, 1]))
    >>> positive.int().tolist(), negative.int().tolist()
    ([[0, 1, 0], [1, 0, 0], [0, 0, 0]], [[0, 0, 1], [0, 0, 1], [1, 1, 0]])
    """
    same = labels[:, None] == labels[None, :]
    negative = ~same
    return same.fill_diagonal_(False), negative


def _triplets(positive: Tensor, negative: Tensor, positives: Tensor, negatives: Tensor) -> Triplets:
    anchor = torch.arange(len(positive), device=positive.device)
    return Triplets(anchor, positive, negative, positives.any(1) & negatives.any(1))


@torch.no_grad()
def random(embeddings: Tensor, labels: Tensor) -> Triplets:
    """For each anchor a positive and a negative drawn uniformly. Hu et al. 2014."""
    positives, negatives = masks(labels)
    return _triplets(pick(positives), pick(negatives), positives, negatives)


@torch.no_grad()
def semihard(embeddings: Tensor, labels: Tensor, margin: float = 0.2) -> Triplets:
    """A random positive, then a random negative a little farther away than it.

        n ~ U{ n : y_n != y_a, d_ap < d_an < d_ap + gamma }

    Schroff et al. 2015; Revisiting DML eq. 20, with the upper bound of Schroff et al. and of the released code.
    Where the set is empty, any negative.
    """
    positives, negatives = masks(labels)
    distance = pairwise(embeddings)
    positive = pick(positives)
    reference = distance.gather(1, positive[:, None])
    semi = negatives & (distance > reference) & (distance < reference + margin)
    allowed = torch.where(semi.any(1, keepdim=True), semi, negatives)
    return _triplets(positive, pick(allowed), positives, negatives)


@torch.no_grad()
def softhard(embeddings: Tensor, labels: Tensor) -> Triplets:
    """Random among the hard: positives farther than the nearest negative, negatives nearer than the farthest positive.

        n ~ U{ n : d_an < max_p d_ap },   p ~ U{ p : d_ap > min_n d_an }

    Roth and Brattoli 2019; Revisiting DML eq. 21-22. Where a set is empty, any positive or negative.
    """
    positives, negatives = masks(labels)
    distance = pairwise(embeddings)
    farthest = distance.masked_fill(~positives, -torch.inf).amax(1, keepdim=True)
    nearest = distance.masked_fill(~negatives, torch.inf).amin(1, keepdim=True)
    hard_positives, hard_negatives = positives & (distance > nearest), negatives & (distance < farthest)
    hard_positives = torch.where(hard_positives.any(1, keepdim=True), hard_positives, positives)
    hard_negatives = torch.where(hard_negatives.any(1, keepdim=True), hard_negatives, negatives)
    return _triplets(pick(hard_positives), pick(hard_negatives), positives, negatives)


def log_inverse_density(squares: Tensor, dim: int, cutoff: float = 0.5) -> Tensor:
    """log 1/q(d) of the distance of two random points on the unit sphere in `dim` dimensions, up to a constant.

        log 1/q(d) = (2 - D)/2 log d^2 - (D - 3)/2 log(1 - d^2 / 4)

    Takes the squares d^2. Distances below the cutoff count as the cutoff (lambda in Revisiting DML, eq. 23-24; there
    the square of d is missing in print). Near the antipode, where q vanishes, the weight is bounded.
    """
    squares = squares.clamp(cutoff**2, 4 * (1 - 1e-7))
    return torch.sub((2.0 - dim) / 2 * squares.log(), (squares / -4).log1p(), alpha=(dim - 3.0) / 2)


@torch.no_grad()
def distance_weighted(embeddings: Tensor, labels: Tensor, cutoff: float = 0.5, limit: float = 1.4) -> Triplets:
    """A random positive, and a negative from all over the range of distances.

        P(n | a) ~ q(max(d_an, lambda))^-1   for d_an < limit

    Wu et al. 2017; Revisiting DML eq. 23-24 with lambda 0.5 and limit 1.4. An anchor whose negatives all lie
    beyond the limit draws from all of them uniformly: its loss is zero or small, and it is not lost. The released
    code has no limit (`limit=2.0`) and so prefers the farthest of them.
    """
    positives, negatives = masks(labels)
    squares = squared(embeddings)
    within = negatives & (squares < limit**2)
    some = within.any(1, keepdim=True)
    weights = torch.where(some, log_inverse_density(squares, embeddings.shape[1], cutoff), 0.0)
    weights = torch.where(torch.where(some, within, negatives), weights, -torch.inf)
    return _triplets(pick(positives), draw(weights), positives, negatives)


@torch.no_grad()
def batch_hard(embeddings: Tensor, labels: Tensor) -> Triplets:
    """The farthest positive and the nearest negative. Hermans et al. 2017."""
    positives, negatives = masks(labels)
    distance = pairwise(embeddings)
    return _triplets(distance.masked_fill(~positives, -torch.inf).argmax(1),
                     distance.masked_fill(~negatives, torch.inf).argmin(1), positives, negatives)


@torch.no_grad()
def multi_similarity(similarity: Tensor, positives: Tensor, negatives: Tensor,
                     epsilon: float = 0.1) -> tuple[Tensor, Tensor]:
    """The pairs that compare badly: positives less similar than the best negative, and the other way round.

        P_i = { j : S_ij < max_{k in N} S_ik + epsilon },   N_i = { j : S_ij > min_{k in P} S_ik - epsilon }

    Wang et al. 2019, eq. 11-12. Takes and gives masks of pairs, not triplets.
    """
    hardest_negative = similarity.masked_fill(~negatives, -torch.inf).amax(1, keepdim=True)
    hardest_positive = similarity.masked_fill(~positives, torch.inf).amin(1, keepdim=True)
    return (positives & (similarity - epsilon < hardest_negative),
            negatives & (similarity + epsilon > hardest_positive))


def switch(triplets: Triplets, p: float) -> Triplets:
    """rho-regularisation: with probability p the positive becomes the negative, and the anchor its own positive.

    Revisiting DML, section 5.1: this pushes samples of one class apart.
    """
    flip = torch.rand(len(triplets.anchor), device=triplets.anchor.device) < p
    return triplets._replace(positive=torch.where(flip, triplets.anchor, triplets.positive),
                             negative=torch.where(flip, triplets.positive, triplets.negative))


@torch.no_grad()
def within_class(embeddings: Tensor, labels: Tensor) -> Triplets:
    """Positive and negative of each anchor drawn from its own class, with replacement. Milbich et al. 2020 (intra)."""
    same = labels[:, None] == labels[None, :]
    anchor = torch.arange(len(labels), device=labels.device)
    # a triplet of one image thrice says nothing
    return Triplets(anchor, pick(same), pick(same), same.sum(1) > 1)

"""The two-dimensional toy examples of Revisiting DML (section 5.1, figure 6; appendix E, figure 11).

A tiny network learns to tell four lines of points apart; other lines are then to be told apart by it. Without
rho-regularisation each training line shrinks to a point, and what lies between or along them is lost; with it, the
lines keep a length, and the test lines come out apart.

Appendix E prints p = 0.001. With its numbers (200 steps, 24 anchors a batch) that switches 5 tuples of 4,800, and the
figure cannot be had so. Its contrastive loss pulls positives at every distance: a switched tuple pushes with the same
force, so the mean pull is (1 - 2p) of what it was and each line shrinks to a point for every p < 1/2, only slower. The
margin loss pulls only beyond beta - gamma, and there the effect is plain, from a tenth of the tuples on. Mean and
deviation over 10 seeds:

                         length of a training line          gap between test lines
    example   loss         p = 0   0.001     0.1     0.4      p = 0     0.001   0.4
    diagonal  contrastive  .0015   .0009   .0018   .0050   .027±.018 .028±.013 .027±.021
    vertical  contrastive  .0010   .0010   .0007   .0048   .003±.002 .003±.003 .008±.009
    diagonal  margin       .041    .040    .158    .279     .64±.46   .68±.47   .56±.50
    vertical  margin       .057    .055    .139    .278     .09±.06   .07±.06   .24±.17

With p = 0.001 lines are longer than without in 2 and 6 (contrastive), 6 and 5 (margin) of 10 seeds: no effect. With
p = 0.4 they are in all 10, for both losses; the test lines of the vertical example then come apart with the margin loss
(2.6 times the gap), those of the diagonal one are apart already without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods.contrastive import Contrastive
from methods.margin import Margin
from methods.method import MethodError
from methods.parts.miners import random, switch
from methods.parts.ranked import Ranked

PRINTED = 0.001
"""The probability of a switched tuple in appendix E."""
POINTS = 15
"""Samples of each line."""


@dataclass(frozen=True)
class Lines:
    """Points of the plane and the number of the line that each lies on."""

    points: Tensor
    labels: Tensor


def lines(ends: list[tuple[tuple[float, float], tuple[float, float]]]) -> Lines:
    """Evenly spaced samples of each segment, in float64: 200 steps turn the last bit of a float32, which differs from
    one processor to the next, into another outcome."""
    share = torch.linspace(0, 1, POINTS, dtype=torch.float64)[:, None]
    drawn = [share.new_tensor(a) * (1 - share) + share.new_tensor(b) * share for a, b in ends]
    return Lines(torch.cat(drawn), torch.arange(len(ends)).repeat_interleave(POINTS))


def diagonal() -> tuple[Lines, Lines]:
    """Figure 6: training lines on the diagonals of the four quadrants, test lines on the axes between them."""
    outer, inner = 1.0, 0.25
    corners = [(1, 1), (-1, 1), (-1, -1), (1, -1)]
    axes = [(1, 0), (0, 1), (-1, 0), (0, -1)]
    return (lines([((inner * x, inner * y), (outer * x, outer * y)) for x, y in corners]),
            lines([((inner * x, inner * y), (outer * x, outer * y)) for x, y in axes]))


def vertical() -> tuple[Lines, Lines]:
    """Figure 11: training lines told apart by x alone; test lines at one x, told apart by y alone."""
    return (lines([((x, -1.0), (x, 1.0)) for x in (-0.9, -0.3, 0.3, 0.9)]),
            lines([((0.0, 0.25), (0.0, 1.0)), ((0.0, -1.0), (0.0, -0.25))]))


EXAMPLES = {"diagonal": diagonal, "vertical": vertical}
OBJECTIVES: dict[str, Callable[[], Ranked]] = {
    "contrastive": lambda: Contrastive(Contrastive.Settings(margin=0.1), 4, 2),
    "margin": lambda: Margin(Margin.Settings(beta=0.6), 4, 2),
}
"""Contrastive loss with the margin of appendix E, margin loss with beta 0.6 as in the study."""


@dataclass(frozen=True)
class Outcome:
    """What a trained toy network makes of both sets of lines."""

    train: Tensor
    test: Tensor
    spectrum: Tensor
    """Singular values of the training embeddings, over their sum."""
    spread: float
    """Mean distance of two points of a training line."""
    gap: float
    """Smallest distance between the centres of two test lines."""


def network() -> nn.Module:
    """Two layers of 30 neurons, from the plane to the plane."""
    return nn.Sequential(nn.Linear(2, 30), nn.ReLU(), nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 2)).double()


def spectrum(embeddings: Tensor) -> Tensor:
    """Singular values, largest first, divided by their sum.

    >>> spectrum(torch.eye(2))
    tensor([0.5000, 0.5000])
    """
    values = torch.linalg.svdvals(embeddings)
    return values / values.sum()


def train(example: str, p: float, *, objective: str = "margin", seed: int = 0, steps: int = 200, batch: int = 24,
          lr: float = 0.03) -> Outcome:
    """Train the toy network with a switch probability of p (0: none), random triplets and the numbers of appendix E."""
    if example not in EXAMPLES or objective not in OBJECTIVES:
        raise MethodError(f"no toy '{example}' with '{objective}'; there are {', '.join(EXAMPLES)} with "
                          f"{' and '.join(OBJECTIVES)}")
    known, unknown = EXAMPLES[example]()
    torch.manual_seed(seed)
    model = network()
    loss_of = OBJECTIVES[objective]()
    optimiser = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(steps):
        chosen = torch.randperm(len(known.labels))[:batch]
        embeddings, labels = F.normalize(model(known.points[chosen]), dim=1), known.labels[chosen]
        loss = loss_of.loss(embeddings, labels, switch(random(embeddings.detach(), labels), p))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        embedded, other = (F.normalize(model(x.points), dim=1) for x in (known, unknown))
    within = torch.stack([torch.pdist(embedded[known.labels == c]).mean() for c in known.labels.unique()])
    centres = torch.stack([other[unknown.labels == c].mean(0) for c in unknown.labels.unique()])
    return Outcome(embedded, other, spectrum(embedded), float(within.mean()), float(torch.pdist(centres).min()))

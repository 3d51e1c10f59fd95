"""The two-dimensional toy examples of Revisiting DML (section 5.1, figure 6; appendix E, figure 11).

A tiny network learns to tell four lines of points apart; other lines are then to be told apart by it. Without
rho-regularisation the embedding keeps the one direction that the training lines need; with it, more of the input
survives, and the test lines come out apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods.contrastive import SwitchedContrastive
from methods.method import MethodError
from methods.parts.distances import pairwise

POINTS = 15
"""Samples of each line."""


@dataclass(frozen=True)
class Lines:
    """Points of the plane and the number of the line that each lies on."""

    points: Tensor
    labels: Tensor


def lines(ends: list[tuple[tuple[float, float], tuple[float, float]]]) -> Lines:
    """Evenly spaced samples of each segment."""
    share = torch.linspace(0, 1, POINTS)[:, None]
    drawn = [torch.tensor(a) * (1 - share) + torch.tensor(b) * share for a, b in ends]
    return Lines(torch.cat(drawn), torch.arange(len(ends)).repeat_interleave(POINTS))


def diagonal() -> tuple[Lines, Lines]:
    """Figure 6: training lines on the diagonals of the four quadrants, test lines on the axes between them."""
    far, near = 1.0, 0.25
    corners = [(1, 1), (-1, 1), (-1, -1), (1, -1)]
    axes = [(1, 0), (0, 1), (-1, 0), (0, -1)]
    return (lines([((near * x, near * y), (far * x, far * y)) for x, y in corners]),
            lines([((near * x, near * y), (far * x, far * y)) for x, y in axes]))


def vertical() -> tuple[Lines, Lines]:
    """Figure 11: training lines told apart by x alone, test lines by y alone."""
    places = (-0.9, -0.3, 0.3, 0.9)
    return (lines([((x, -1.0), (x, 1.0)) for x in places]), lines([((-0.25, y), (0.25, y)) for y in places]))


EXAMPLES = {"diagonal": diagonal, "vertical": vertical}


@dataclass(frozen=True)
class Outcome:
    """What a trained toy network makes of both sets of lines."""

    train: Tensor
    test: Tensor
    spectrum: Tensor
    """Singular values of the training embeddings, over their sum."""
    separation: float
    """Share of test points whose nearest other test point lies on the same line."""


def network() -> nn.Module:
    """Two layers of 30 neurons, from the plane to the plane."""
    return nn.Sequential(nn.Linear(2, 30), nn.ReLU(), nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 2))


def spectrum(embeddings: Tensor) -> Tensor:
    """Singular values, largest first, divided by their sum.

    >>> spectrum(torch.eye(2))
    tensor([0.5000, 0.5000])
    """
    values = torch.linalg.svdvals(embeddings)
    return values / values.sum()


def separation(embeddings: Tensor, labels: Tensor) -> float:
    """Share of points whose nearest other point has the same label (Recall@1)."""
    distance = pairwise(embeddings).fill_diagonal_(torch.inf)
    return float((labels[distance.argmin(1)] == labels).float().mean())


def train(example: str, p: float, *, seed: int = 0, steps: int = 200, batch: int = 24, lr: float = 0.03,
          margin: float = 0.1) -> Outcome:
    """Train the toy network by contrastive loss with a switch probability of p (0: none); settings of appendix E."""
    if example not in EXAMPLES:
        raise MethodError(f"unknown toy example '{example}'; there are {', '.join(EXAMPLES)}")
    known, unknown = EXAMPLES[example]()
    torch.manual_seed(seed)
    model = network()
    settings = SwitchedContrastive.Settings(margin=margin, p=p, cutoff=0.0, limit=3.0)
    objective = SwitchedContrastive(settings, 4, 2)
    optimiser = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(steps):
        chosen = torch.randperm(len(known.labels))[:batch]
        loss = objective(F.normalize(model(known.points[chosen]), dim=1), known.labels[chosen])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        embedded, other = (F.normalize(model(x.points), dim=1) for x in (known, unknown))
    return Outcome(embedded, other, spectrum(embedded), separation(other, unknown.labels))

"""What the ranking objectives share: a miner that picks triplets, and the rho-regularisation of what it picked."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from methods.method import Objective, setting
from methods.parts import miners
from methods.parts.miners import Triplets

MINING = "Revisiting DML, appendix A.2"
ROTH = """
@inproceedings{roth2020revisiting, title={Revisiting Training Strategies and Generalization Performance in Deep
  Metric Learning}, author={Roth, Karsten and Milbich, Timo and Sinha, Samarth and Gupta, Prateek and Ommer,
  Bj{\\"o}rn and Cohen, Joseph Paul}, booktitle={ICML}, year={2020}}"""
SWITCH = "Revisiting DML, released code (default .2); CUB, Cars and SOP as in its table of runs"


class Ranked(Objective):
    """An objective over mined triplets: `mine` picks them without gradient, `loss` weighs them."""

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return self.loss(embeddings, labels, self.mine(embeddings.detach(), labels))

    def mine(self, embeddings: Tensor, labels: Tensor) -> Triplets:
        return miners.distance_weighted(embeddings, labels, self.settings.cutoff, self.settings.limit)

    def loss(self, embeddings: Tensor, labels: Tensor, triplets: Triplets) -> Tensor:
        raise NotImplementedError


class Switched(Ranked):
    """Mix-in of the r- methods: with probability p a triplet pushes the anchor's own class away from it."""

    def mine(self, embeddings: Tensor, labels: Tensor) -> Triplets:
        return miners.switch(super().mine(embeddings, labels), self.settings.p)


def mean(values: Tensor, valid: Tensor) -> Tensor:
    """Mean over the valid; zero, with a zero gradient, where none is."""
    return (values * valid).sum() / valid.sum().clamp(min=1)


def cutoff() -> Any:
    """The setting lambda of distance-weighted mining: smaller distances count as this."""
    return setting(0.5, MINING + " (lambda)")


def limit() -> Any:
    """The setting beyond which distance-weighted mining takes no negatives."""
    return setting(1.4, MINING + "; the released code has none (2.0)")

"""What proxy and classification objectives share: one learnt vector (or several) for each training class."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods.method import Objective

EIGHTH = "Revisiting DML, released code: normal, divided by 8"


class Proxied(Objective):
    """An objective with one proxy for each class; `proxy_rate` is their learning rate, times lr.

    They start as normal vectors divided by 8; only their direction matters, and their length decides how fast a
    step turns them.
    """

    def __init__(self, settings: Any, classes: int, dim: int) -> None:
        super().__init__(settings, classes, dim)
        self.proxies = nn.Parameter(self.initial(classes, dim))

    def initial(self, classes: int, dim: int) -> Tensor:
        return torch.randn(classes, dim) / 8

    def rates(self) -> dict[str, float]:
        return {"proxies": self.settings.proxy_rate}

    def cosines(self, embeddings: Tensor) -> Tensor:
        """cos(phi_i, psi_c) of every embedding and every proxy."""
        return embeddings @ F.normalize(self.proxies, dim=-1).T


def target(cosines: Tensor, labels: Tensor) -> Tensor:
    """The cosine of each embedding and the proxy of its own class."""
    return cosines.gather(1, labels[:, None])[:, 0]


def with_target(cosines: Tensor, labels: Tensor, values: Tensor) -> Tensor:
    """The cosines with those of the own class replaced."""
    return cosines.scatter(1, labels[:, None], values[:, None])


def angle(cosine: Tensor) -> Tensor:
    """arccos, from cosines clamped just inside (-1, 1), where its slope is still finite."""
    return cosine.clamp(-1 + 1e-6, 1 - 1e-6).acos()

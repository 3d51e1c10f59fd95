"""Probing: only what stands on the frozen backbone is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from methods import Objective, register, setting
from methods.layers.tuned import KIM, Tuned


@register("linear-emb", family="parameter-efficient", papers=["uml"], tags=["parameter-efficient"],
          base="curricularface", cite=KIM, trains="the last layer, and what its objective has")
class LinearEmbedding(Tuned):
    """One linear layer on a frozen backbone.

        phi(x) = (W h(x) + b) / |.|,   h frozen

    "Linear Emb." of UML's table 2.
    """


@register("mlp3-emb", family="parameter-efficient", papers=["uml"], tags=["parameter-efficient"],
          base="curricularface", cite=KIM, trains="the last three layers, and what its objective has")
class MlpEmbedding(Tuned):
    """Three layers on a frozen backbone.

        phi(x) = W_3 GELU(W_2 GELU(W_1 h(x) + b_1) + b_2) + b_3, normalised,   h frozen

    "MLP-3 Emb." of UML's table 2, as in its released code: two hidden layers of 2048, no norm. Those are
    5.25 M parameters, which the table rounds up as it does the linear layer's.
    """

    example_settings: ClassVar[dict[str, Any]] = {"hidden": 16}

    @dataclass(frozen=True)
    class Settings(Tuned.Settings):
        hidden: int = setting(2048, "UML, released code")

    def __init__(self, backbone: nn.Module, objective: Objective, dim: int, settings: Any = None) -> None:
        super().__init__(backbone, objective, dim, settings)
        hidden = self.settings.hidden
        self.embedding = nn.Sequential(nn.Linear(backbone.dim, hidden), nn.GELU(),  # type: ignore[arg-type]
                                       nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, dim))

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

        phi(x) = (W_3 relu(LN(W_2 relu(LN(W_1 h(x)))))) / |.|,   h frozen

    "MLP-3 Emb." of UML's table 2, whose shape is not stated: two hidden layers of 2048 with a norm each have the 5.3 M
    parameters printed there (5.2 M without).
    """

    example_settings: ClassVar[dict[str, Any]] = {"hidden": 16}

    @dataclass(frozen=True)
    class Settings(Tuned.Settings):
        hidden: int = setting(2048, "from the parameter count in UML, table 2")

    def __init__(self, backbone: nn.Module, objective: Objective, dim: int, settings: Any = None) -> None:
        super().__init__(backbone, objective, dim, settings)
        hidden = self.settings.hidden
        self.embedding = nn.Sequential(nn.Linear(backbone.dim, hidden), nn.LayerNorm(hidden), nn.ReLU(),  # type: ignore[arg-type]
                                       nn.Linear(hidden, hidden), nn.LayerNorm(hidden), nn.ReLU(),
                                       nn.Linear(hidden, dim))

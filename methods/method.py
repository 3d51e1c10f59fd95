"""What a method is: an objective over embeddings, and the network that makes them.

Most methods are one `Objective`: a loss over a batch of embeddings. It is trained with the plain `Method`, a
backbone and one linear layer. A method that changes the network or the step derives from `Method` itself and
takes any objective as its base (`s2sd:multisimilarity`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods.settings import MethodError, NoSettings, near, setting

__all__ = ["Method", "MethodError", "NoSettings", "Objective", "Step", "near", "setting"]


class Objective(nn.Module):
    """A loss over one batch of embeddings; its parameters are proxies, betas and the like.

    `forward(embeddings, labels)` returns a scalar. Labels are 0 .. classes-1. Embeddings come L2-normalised
    unless the class says `normalised = False`.
    """

    Settings: ClassVar[type] = NoSettings
    normalised: ClassVar[bool] = True
    batches: ClassVar[str] = "spc-2"

    def __init__(self, settings: Any, classes: int, dim: int) -> None:
        super().__init__()
        self.settings = settings
        self.classes = classes
        self.dim = dim

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        raise NotImplementedError

    def rates(self) -> dict[str, float]:
        """Learning rates of parameters that do not use the protocol's lr, as multiples of it, by their name here.

        A paper's absolute rate is that of its own lr: 5e-4 for beta at 1e-5 is 50. A protocol with another lr
        then keeps the ratio.
        """
        return {}

    def sibling(self, dim: int) -> Objective:
        """A fresh objective of the same kind and settings, for another embedding of the same classes."""
        return type(self)(self.settings, self.classes, dim)


class Step(NamedTuple):
    """What one training step gives back: the loss, and the batch's embeddings for samplers that remember them."""

    loss: Tensor
    embeddings: Tensor


class Method(nn.Module):
    """A backbone, one linear embedding layer and an objective: the plain way to train a metric.

        z(x) = W h(x) + b,   phi(x) = z / |z|

    Subclasses change what they must: `features` (images to what the last layer, `embedding`, takes), `project`
    (features to training embeddings), `embed` (images to the normalised embeddings that are searched), `step` (one
    batch's loss) or `groups` (what is optimised, and how).
    """

    Settings: ClassVar[type] = NoSettings
    views: ClassVar[int] = 1
    """How many augmentations of each image a batch holds; with more than one, `step` gets (views, b, c, h, w)."""
    compiles: ClassVar[bool] = True
    """Whether its backbone may be compiled, as it is when training begins; one that changes the network's course from
    outside (hooks) or its form along the way says no."""
    compiled_parts: ClassVar[tuple[str, ...]] = ()
    """Functions of its own, from tensors to tensors, that are compiled where the backbone is: heads whose many small
    operations would take longer to launch than to compute."""
    whole_batch: ClassVar[bool] = False
    """Whether the images of a batch meet within the backbone, which then cannot see them in pieces (`micro_batch`)."""

    @classmethod
    def misfit(cls, backbone: nn.Module) -> str:
        """Why this method cannot stand on a backbone, in one line; empty if it can."""
        return ""

    @classmethod
    def base_changes(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """What it sets of its base objective, given settings of its own; what the base does not have is passed over."""
        return {}

    def __init__(self, backbone: nn.Module, objective: Objective, dim: int, settings: Any = None) -> None:
        super().__init__()
        self.backbone = backbone
        self.objective = objective
        self.settings = settings
        self.embedding: nn.Module = nn.Linear(backbone.dim, dim)  # type: ignore[arg-type]

    def forward(self, images: Tensor) -> Tensor:
        return self.project(self.features(images))

    def features(self, images: Tensor) -> Tensor:
        """What the last layer, `embedding`, works on: the backbone's pooled features."""
        return self.backbone(images)

    def project(self, features: Tensor) -> Tensor:
        """Training embeddings of such features, which may be cached where nothing below the last layer trains."""
        z = self.embedding(features)
        return F.normalize(z, dim=-1) if self.objective.normalised else z

    def embed(self, images: Tensor) -> Tensor:
        """The normalised embeddings by which images are searched."""
        return F.normalize(self(images).float(), dim=-1)

    def step(self, images: Tensor, labels: Tensor) -> Step:
        embeddings = self(images)
        # Similarities of a whole batch in bf16 tie by the dozen; every objective works in float32.
        with torch.autocast(embeddings.device.type, enabled=False):
            embeddings = embeddings.float()
            loss = self.objective(embeddings, labels)
            if not isinstance(loss, Tensor) or loss.numel() != 1:
                what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
                raise MethodError(f"{type(self.objective).__name__}.forward returns {what}; a loss is a scalar tensor")
            return Step(loss, embeddings.detach())

    def after_step(self) -> None:
        """Called after the optimiser moved: momentum encoders, queues."""

    def groups(self, lr: float, weight_decay: float) -> list[dict[str, Any]]:
        """Parameter groups of the optimiser: the network decays, what belongs to the objective does not.

        Each group carries a name: `backbone` rests during warm-up, `head` is the rest of the network.
        """
        objectives = {name: module for name, module in self.named_modules() if isinstance(module, Objective)}
        own: dict[str, list[nn.Parameter]] = {"backbone": [], "head": []}
        theirs: list[dict[str, Any]] = []
        for name, parameter in self.named_parameters():
            if not parameter.requires_grad:
                continue
            holder = next((prefix for prefix in objectives if name.startswith(f"{prefix}.")), None)
            if holder is None:
                own["backbone" if name.startswith("backbone.") else "head"].append(parameter)
            else:
                times = objectives[holder].rates().get(name.removeprefix(f"{holder}."), 1.0)
                theirs.append({"name": name, "params": [parameter], "lr": times * lr, "weight_decay": 0.0})
        return [{"name": name, "params": parameters, "lr": lr, "weight_decay": weight_decay}
                for name, parameters in own.items() if parameters] + theirs

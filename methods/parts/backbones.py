"""Backbones: images in, pooled features out. Weights are handed in by whoever builds them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from methods.method import MethodError
from methods.registry import near

TIMM = {
    "efficientnet_lite0": "tf_efficientnet_lite0.in1k",
    "efficientnet_lite2": "tf_efficientnet_lite2.in1k",
    "resnet18": "resnet18.tv_in1k",
    "resnet50": "resnet50.tv_in1k",
    "resnet101": "resnet101.tv_in1k",
    "vit_small": "vit_small_patch16_224.augreg_in21k_ft_in1k",
    "vit_base": "vit_base_patch16_224.augreg_in21k_ft_in1k",
}
"""Short names of the papers' backbones and the timm models they stand for; any other timm name works as it is."""

CLASSIFIER = ("classifier.", "fc.", "head.", "head_drop.", "last_linear.")
"""Prefixes of the classification layer, which a checkpoint may hold and a backbone does not."""


class Backbone(nn.Module):
    """A network up to its pooled features, with what the data path must know of it.

    `dim` is the width of the features; `mean` and `std` are the pixel statistics that its weights expect. With
    `frozen_norm` its batch-norm statistics stay as loaded while their scale and shift still train, as is usual
    in metric learning.
    """

    def __init__(self, name: str, network: nn.Module, dim: int, mean: tuple[float, ...], std: tuple[float, ...],
                 frozen_norm: bool) -> None:
        super().__init__()
        self.name = name
        self.network = network
        self.dim = dim
        self.mean = mean
        self.std = std
        self.frozen_norm = frozen_norm

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images)

    def train(self, mode: bool = True) -> Backbone:
        super().train(mode)
        if self.frozen_norm:
            for module in self.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    def load(self, state: dict[str, Tensor], source: str, by_order: bool = False) -> None:
        """Take the weights of a checkpoint, or refuse it with the first keys that differ.

        With `by_order` names may differ and tensors are matched one by one: same order, shape and last name.
        """
        own = self.network.state_dict()
        given = {key.removeprefix("module."): value for key, value in state.items()}
        given = {key: value for key, value in given.items() if not key.startswith(CLASSIFIER)
                 and not (by_order and key.startswith("_fc."))}
        if by_order and len(own) == len(given):
            given = {key: value for key, (other, value) in zip(own, given.items())
                     if key.rsplit(".")[-1] == other.rsplit(".")[-1] and value.shape == own[key].shape}
        wrong = [f"{key} {tuple(value.shape)}" for key, value in own.items()
                 if key not in given or given[key].shape != value.shape]
        extra = [key for key in given if key not in own]
        if wrong or extra:
            raise MethodError(f"{source} does not fit {self.name}: missing or of another shape {wrong[:3]}, "
                              f"unknown {extra[:3]} ({len(wrong)} and {len(extra)} in all)")
        self.network.load_state_dict(given)


class Conv4(nn.Module):
    """Four blocks of 3x3 convolution, batch norm, ReLU and 2x2 max pooling: the few-shot literature's ConvNet.

    The last map is pooled to 2x2 and flattened, so that coarse position survives.
    """

    widths = (32, 64, 64, 128)

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in zip((3, *self.widths), self.widths):
            layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True),
                       nn.MaxPool2d(2)]
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten())

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


def create(name: str, *, frozen_norm: bool = True) -> Backbone:
    """A backbone by short name or timm name, with random weights.

    >>> create("conv4").dim
    512
    """
    if name == "conv4":
        # learnt from scratch: its batch-norm statistics must move
        return Backbone(name, Conv4(), 512, (0.5,) * 3, (0.5,) * 3, frozen_norm=False)
    import timm

    tag = TIMM.get(name, name)
    if not timm.is_model(tag.partition(".")[0]):
        known = [*TIMM, "conv4", *timm.list_models()]
        raise MethodError(f"unknown backbone '{name}'{near(name, known)}; timm.list_models() names all")
    network = timm.create_model(tag, pretrained=False, num_classes=0)
    with torch.no_grad():
        # num_features is not always the width after pooling (MobileNets widen it in the head)
        dim = getattr(network, "head_hidden_size", None) or network.num_features
    facts = network.pretrained_cfg
    return Backbone(name, network, dim, tuple(facts["mean"]), tuple(facts["std"]), frozen_norm)

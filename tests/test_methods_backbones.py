"""Backbones of every build take the weights of timm's own network, with its classifier or without."""

from __future__ import annotations

import pytest
import timm
import torch

from methods import MethodError
from methods.backbones import create

NETWORKS = ("test_convnext", "test_resnet", "test_vit", "test_efficientnet", "hgnetv2_b0", "edgenext_xx_small")
"""Of the first and the last two a part of the head stands before the classifier and belongs to the features."""


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("classes", [0, 10])
def test_a_backbone_takes_the_weights_of_its_network(name: str, classes: int) -> None:
    torch.manual_seed(1)
    network = timm.create_model(name, pretrained=False, num_classes=classes).eval()
    for value in network.state_dict().values():  # a norm at its start would hide that it was left out
        if value.is_floating_point():
            value.add_(0.1 * torch.rand_like(value))
    backbone = create(name).eval()
    backbone.load(network.state_dict(), "weights.pth")
    images = torch.rand(2, 3, 160, 160)
    with torch.no_grad():
        network.reset_classifier(0)  # type: ignore[operator]
        torch.testing.assert_close(backbone(images), network(images))


def test_weights_without_the_norm_of_the_features_are_refused() -> None:
    state = create("test_convnext").network.state_dict()
    del state["head.norm.weight"]
    with pytest.raises(MethodError, match=r"head\.norm\.weight"):
        create("test_convnext").load(state, "weights.pth")

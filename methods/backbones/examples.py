"""Small backbones of each kind, for trying a method out in a moment."""

from __future__ import annotations

from torch import Tensor, nn

from methods.backbones import CENTRED, Backbone


class TwoConvolutions(nn.Module):
    """Two strided convolutions."""

    num_features = 12

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(nn.Conv2d(3, 8, 5, stride=4), nn.GELU(), nn.Conv2d(8, 12, 3, stride=2), nn.GELU())

    def forward_features(self, images: Tensor) -> Tensor:
        return self.blocks(images)

    def forward_head(self, maps: Tensor) -> Tensor:
        return nn.functional.adaptive_avg_pool2d(maps, 2).flatten(1)

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))


def small_cnn() -> Backbone:
    """A convolutional backbone with 48 pooled features and maps of 12 channels.

    >>> small_cnn().dim
    48
    """
    return Backbone("small_cnn", TwoConvolutions(), 48, *CENTRED, frozen_norm=False)


def small_vit() -> Backbone:
    """A vision transformer of two blocks, for images of 32 pixels.

    >>> small_vit().dim
    24
    """
    import timm

    network = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=16, embed_dim=24, depth=2, num_heads=2,
                                num_classes=0, dynamic_img_size=True, dynamic_img_pad=True)
    return Backbone("small_vit", network, 24, *CENTRED, frozen_norm=False)

"""How images become network input: the settings of a pipeline, those of Revisiting DML by their names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmark.utils.errors import UserError, near

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Transform:
    """How images become network input, in training and in evaluation.

    Training: crop, flip with probability `flip`, grey with probability `grayscale`, colour jitter, normalise. The crop
    is `RandomResizedCrop(size, scale, ratio)` of the original image for `crop="resized"`, or `Resize(resize)` and
    `RandomCrop(size)` for `crop="plain"`. Evaluation: `Resize(resize)`, `CenterCrop(size)`, normalise. `jitter` is
    torchvision's `ColorJitter(brightness, contrast, saturation, hue)`. `interpolation` is "bilinear" or "bicubic",
    both antialiased as in Pillow, and is what is done to the stored image: one whose shorter side was above 256 (or
    what the protocol asks for, `image_side` or `resize`) has been shrunk to that by a bilinear filter when it was
    decoded (`store.py`). Where that is `resize`, "bicubic" thus changes nothing about its evaluation, and in training
    the crops of the shrunk copy; smaller images are stored whole, and "bicubic" is all that is done to them.
    """

    size: int = 224
    resize: int = 256
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    jitter: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    grayscale: float = 0.0
    crop: str = "resized"
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        for name in ("scale", "ratio", "jitter", "mean", "std"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not 1 <= self.size <= self.resize:
            raise UserError(f"crop size {self.size} must lie between 1 and the resized shorter side {self.resize}: "
                            "lower `size` or raise `resize`")
        if not 0 < self.scale[0] <= self.scale[1] <= 1 or not 0 < self.ratio[0] <= self.ratio[1]:
            raise UserError(f"scale {self.scale} must rise within (0, 1] and ratio {self.ratio} must rise above 0")
        if min(self.jitter) < 0 or self.jitter[3] > 0.5:
            raise UserError(f"jitter {self.jitter} must be four strengths of at least 0, the last (hue) at most 0.5")
        if min(self.std) <= 0:
            raise UserError(f"std {self.std} must be above 0")
        for name, known in (("interpolation", ("bilinear", "bicubic")), ("crop", ("resized", "plain"))):
            if getattr(self, name) not in known:
                raise UserError(f"unknown {name} '{getattr(self, name)}': use one of {', '.join(known)}")

    @classmethod
    def named(cls, name: str, **changes: Any) -> Transform:
        """The augmentations of Revisiting DML (section 4.2), with other fields changed as given.

        `base`: random resized crop to 224 and flip. `red`: shorter side to 256, random 224 crop, flip. `big`: `base` at
        256. `adv`: `base` and colour jitter of 0.2 each, the strength of the released code since the paper has none;
        `adv_released` also turns a fifth of the images grey, which that code does and the paper does not say.

        >>> Transform.named("big").size, Transform.named("base", size=227).size
        (256, 227)
        """
        if name not in NAMED:
            raise UserError(f"unknown augmentation '{name}'{near(name, NAMED)}; there are {', '.join(NAMED)}")
        return cls(**{**NAMED[name], **changes})

    @property
    def evaluation(self) -> dict[str, Any]:
        """The settings that evaluation depends on: the key of anything computed from evaluation images."""
        return {name: getattr(self, name) for name in ("size", "resize", "mean", "std", "interpolation")}

    def replace(self, **changes: Any) -> Transform:
        return dataclasses.replace(self, **changes)


NAMED: Mapping[str, Mapping[str, Any]] = {
    "base": {},
    "red": {"crop": "plain"},
    "big": {"size": 256},
    "adv": {"jitter": (0.2, 0.2, 0.2, 0.2)},
    "adv_released": {"jitter": (0.2, 0.2, 0.2, 0.2), "grayscale": 0.2},
}

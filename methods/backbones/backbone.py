"""Backbones: images in, pooled features and the last map out. Weights are handed in by whoever builds them."""

from __future__ import annotations

import copy
import pickle
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from methods.backbones import names
from methods.backbones.convolutions import Padded3x3, replace_depthwise
from methods.backbones.resnet_v1 import NAME as RESNET_V1
from methods.backbones.resnet_v1 import check_features, check_layout, resnet50_v1
from methods.settings import MethodError, near

UNTAGGED = ("resnet50.swav",)
"""timm networks with weights that timm does not carry: the authors' files, given as a file."""

FLEXIBLE = ("vision_transformer", "deit", "eva")
"""timm's modules whose networks take images of any size, their position embeddings interpolated to it."""

CLASSIFIER = ("classifier.", "fc.", "head.", "head_drop.", "head_dist.", "last_linear.", "aux1.", "aux2.",
              "projection_head.", "prototypes.")
"""Prefixes of what stood on the features in pretraining, which a checkpoint may hold and a backbone does not."""

WITHIN = "backbone.network."
"""Prefix of a backbone's weights in the state of a method."""


class Backbone(nn.Module):
    """A network up to its pooled features, with what the data path must know of it.

    `dim` is the width of the pooled features and `local_dim` that of the last map; `mean` and `std` are the pixel
    statistics that its weights expect. With `frozen_norm` the statistics of its batch norm stay as loaded while scale
    and shift still train, as in the released codes of Revisiting DML and ooDML (architectures/resnet50.py: `eval()`,
    and all parameters in the optimiser); with `frozen_norm="all"` these stay too.
    """

    def __init__(self, name: str, network: nn.Module, dim: int, mean: tuple[float, ...], std: tuple[float, ...],
                 frozen_norm: bool | str) -> None:
        super().__init__()
        self.name = name
        self.network = network
        self.dim = dim
        self.local_dim = int(network.num_features)  # type: ignore[arg-type]
        self.mean = mean
        self.std = std
        self.pooling = ""
        """Another pooling of the last map than the network's own."""
        self.frozen_norm = frozen_norm not in (False, "no")
        if frozen_norm == "all":
            for norm in self.batch_norms():
                norm.requires_grad_(False)

    def forward(self, images: Tensor, local: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Pooled features (b, dim); with `local` also the last map as (b, places, local_dim).

        One entry for both, so that a compiled backbone serves whoever asks.
        """
        if not local and not self.pooling:
            return self.network(images)
        maps = self.network.forward_features(images)  # type: ignore[operator]
        places = self.places(maps)
        pooled = (names.pool(places, maps, self.pooling) if self.pooling
                  else self.network.forward_head(maps))  # type: ignore[operator]
        return (pooled, places) if local else pooled

    def pooled_as(self, pooling: str) -> Backbone:
        """The same backbone with another pooling; none leaves it as it is."""
        names.check_pooling(self.name, pooling, self.network)
        if pooling:
            self.pooling, self.dim = pooling, self.local_dim
        return self

    def facts(self) -> dict[str, Any]:
        """What tables say of it: parameters, width and pooling of its features, the images behind timm's weights."""
        network, label, _ = names.parse(self.name)
        usual = ("ImageNet-1k",) if network in names.OWN[1:] else names.pretraining(names.TIMM.get(network, network))
        sets = () if label else usual
        return {"parameters": sum(p.numel() for p in self.network.parameters()), "dim": self.dim,
                "pooling": self.pooling or names.own_pooling(self.network), "pretraining": list(sets)}

    def places(self, maps: Tensor) -> Tensor:
        """A map (b, c, h, w) or (b, h, w, c), or a transformer's tokens, as (b, places, c) without class tokens."""
        if maps.ndim == 3:
            return maps[:, getattr(self.network, "num_prefix_tokens", 0):]
        if maps.shape[1] == self.local_dim:
            return maps.flatten(2).transpose(1, 2)
        return maps.flatten(1, 2)

    def train(self, mode: bool = True) -> Backbone:
        super().train(mode)
        if self.frozen_norm:
            for norm in self.batch_norms():
                norm.eval()
        return self

    def batch_norms(self) -> list[nn.Module]:
        """Every batch norm of the network."""
        return [module for module in self.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]

    def load(self, state: dict[str, Tensor], source: str, by_order: bool = False, told: bool = False) -> None:
        """Take the weights of a checkpoint, or refuse it with the first keys that differ.

        Of a whole trained method's state the backbone's part is taken. With `by_order` names may differ and tensors
        are matched one by one: same order, shape and last name. `told` says that the checkpoint names its backbone,
        and that this is one; else its numbers must tell the layouts of ResNet-50 apart.
        """
        own, network = self.network.state_dict(), names.parse(self.name).network
        tensors = {key.removeprefix("module."): value for key, value in state.items()}
        if any(key.startswith(WITHIN) for key in tensors):
            tensors = {key.removeprefix(WITHIN): value for key, value in tensors.items() if key.startswith(WITHIN)}
        # some networks, ConvNeXt for one, keep a norm of their features in the head
        tensors = {key: value for key, value in tensors.items() if key in own or not (
                   key.startswith(CLASSIFIER) or (by_order and key.startswith("_fc.")))}
        if not told:
            check_layout(network, tensors, source)
        if by_order and len(own) == len(tensors):
            tensors = {key: value for key, (other, value) in zip(own, tensors.items())
                       if key.rsplit(".")[-1] == other.rsplit(".")[-1] and value.shape == own[key].shape}
        wrong = [f"{key} {tuple(value.shape)}" for key, value in own.items()
                 if key not in tensors or tensors[key].shape != value.shape]
        extra = [key for key in tensors if key not in own]
        if wrong or extra:
            said = [f"{len(keys)} {what}, such as {', '.join(keys[:3])}" for keys, what in (
                (wrong, "missing or of another shape"), (extra, "unknown")) if keys]
            raise MethodError(f"{source} does not fit {self.name}: {'; '.join(said)}; name the network that these "
                              "weights are of, by its name in timm")
        self.network.load_state_dict(tensors)
        if network == RESNET_V1 and not told:
            check_features(self.network, tensors, source)


class Conv4(nn.Module):
    """Four blocks of 3x3 convolution, batch norm, ReLU and 2x2 max pooling: the few-shot literature's ConvNet.

    The last map is pooled to 2x2 and flattened, so that coarse position survives; a last batch norm without scale
    centres the features, as those behind a ReLU all point the same way and proxies could not tell them apart.
    """

    widths = (16, 32, 64, 128)
    num_features = widths[-1]

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in zip((3, *self.widths), self.widths):
            layers += [Padded3x3(before, after), nn.BatchNorm2d(after), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        self.layers = nn.Sequential(*layers)
        self.norm = nn.BatchNorm1d(4 * self.widths[-1], affine=False)

    def forward_features(self, images: Tensor) -> Tensor:
        return self.layers(images)

    def forward_head(self, maps: Tensor) -> Tensor:
        return self.norm(nn.functional.adaptive_avg_pool2d(maps, 2).flatten(1))

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))


IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CENTRED = ((0.5,) * 3, (0.5,) * 3)


def _own(name: str, frozen_norm: bool | str) -> Backbone:
    if name == "conv4":
        # learnt from scratch: its batch-norm statistics must move
        return Backbone(name, Conv4(), 512, *CENTRED, frozen_norm=False)
    if name == RESNET_V1:
        return Backbone(name, resnet50_v1(), 2048, *IMAGENET, frozen_norm)
    if name.startswith("mit_"):
        from methods.backbones.mit import MixTransformer

        return Backbone(name, MixTransformer(name), MixTransformer.num_features, *IMAGENET, frozen_norm)
    from methods.backbones.inceptions import BNInception, GoogLeNet

    if name == "googlenet":
        # torchvision's weights come from TensorFlow and want pixels in [-1, 1]
        return Backbone(name, GoogLeNet(), GoogLeNet.num_features, *CENTRED, frozen_norm)
    # means of Caffe in red, green, blue order, and no division: the network wants 0 .. 255
    return Backbone(name, BNInception(), BNInception.num_features, (128 / 255, 117 / 255, 104 / 255), (1 / 255,) * 3,
                    frozen_norm)


def create(name: str, *, frozen_norm: bool | str = True) -> Backbone:
    """A backbone by short name or timm name, with random weights; `names` says what may follow the name.

    Vision transformers take images of any size: position embeddings are interpolated, and an image that its patches
    do not divide is padded.

    >>> create("conv4").dim
    512
    """
    network, _, pooling = names.parse(name)
    made = _own(network, frozen_norm) if network in names.OWN else _of_timm(network, frozen_norm)
    made.name = name
    return made.pooled_as(pooling)


def _of_timm(name: str, frozen_norm: bool | str) -> Backbone:
    import timm

    tag = names.TIMM.get(name, name)
    arch, _, weights = tag.partition(".")
    if not timm.is_model(arch):
        known = [*names.TIMM, *names.OWN, *timm.list_models()]
        raise MethodError(f"unknown backbone '{name}'{near(name, known)}; timm.list_models() names all")
    tagged = timm.list_models(f"{arch}.*", pretrained=True)
    if weights and tag not in tagged and tag not in UNTAGGED:
        raise MethodError(f"timm has no weights '{weights}' of {arch}{near(tag, tagged)}; it has {', '.join(tagged)}")
    flexible = timm.models.is_model_in_modules(arch, FLEXIBLE)
    options: dict[str, Any] = {"dynamic_img_size": True, "dynamic_img_pad": True} if flexible else {}
    network: Any = timm.create_model(arch if tag in UNTAGGED else tag, pretrained=False, num_classes=0, **options)
    replace_depthwise(network)
    # num_features is not always the width after pooling (MobileNets widen it in the head)
    dim = getattr(network, "head_hidden_size", None) or network.num_features
    facts = network.pretrained_cfg
    return Backbone(name, network, dim, tuple(facts["mean"]), tuple(facts["std"]), frozen_norm)


@cache
def skeleton(name: str) -> Backbone:
    """The backbone without memory behind its weights: its shape, to ask what fits it.

    >>> skeleton("vit_large").dim
    1024
    """
    with torch.device("meta"), Unfilled():
        return create(name)


def skeleton_copy(name: str) -> Backbone:
    """A skeleton of one's own, which a method may change.

    >>> skeleton_copy("conv4") is skeleton_copy("conv4")
    False
    """
    try:
        return pickle.loads(_pickled(name))  # a fifth of the time of a deep copy, and plans ask for hundreds
    except Exception:  # networks of timm may hold functions that cannot be pickled
        return copy.deepcopy(skeleton(name))


@cache
def _pickled(name: str) -> bytes:
    return pickle.dumps(skeleton(name), pickle.HIGHEST_PROTOCOL)


class Unfilled(TorchFunctionMode):
    """Leaves out what would fill tensors in place, most of the time that a network without memory takes to make."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in ("uniform_", "normal_", "fill_", "zero_", "erfinv_", "mul_", "add_", "clamp_"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))

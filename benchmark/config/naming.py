"""What the names of methods and backbones stand for, so that one thing that is written in two ways is known as one.

`datasets.meant` says it of datasets.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import methods
from methods import backbones


def methods_meant(text: str, also: Iterable[str] = ()) -> dict[str, str]:
    """The methods of a list as for `--methods`, each with the objective that it builds on.

    `also` are names such as puma:margin that are in no register: what globs, tags and `all` may mean besides.

    >>> methods_meant("margin,puma"), methods_meant("puma:m*", also=["puma:margin"])
    ({'margin': 'margin', 'puma': 'puma:curricularface'}, {'puma:margin': 'puma:margin'})
    """
    return {name: _with_base(name) for name in methods.select(text, also)}


def _with_base(name: str) -> str:
    base = methods.get(name).base
    return f"{name.partition(':')[0]}:{base.name}" if base else name


def backbones_meant(text: str, also: Iterable[str] = ()) -> dict[str, str]:
    """The backbones of a list as for `--backbones`: timm's whole name of each, its pooling and the file of its weights.

    `also` are such meanings: NETWORK:LABEL without its file is the one there that is called so.

    >>> backbones_meant("resnet50@gem,resnet50.tv_in1k,conv4")
    {'resnet50@gem': 'resnet50.tv_in1k@gem', 'resnet50.tv_in1k': 'resnet50.tv_in1k', 'conv4': 'conv4'}
    >>> backbones_meant("resnet50:mine", also=["resnet50.tv_in1k:mine=/weights/mine.pth"])
    {'resnet50:mine': 'resnet50.tv_in1k:mine=/weights/mine.pth'}
    """
    called = {one.partition("=")[0]: one for one in also}
    found = {}
    for written, name, file in _entries(text):
        network, label, pooling = backbones.names.parse(name)
        full = f"{_timm_name(network)}{':' * bool(label)}{label}{'@' * bool(pooling)}{pooling}"
        found[written] = f"{full}={os.path.realpath(file)}" if file else called.get(full, full) if label else full
    return found


def backbone_with_file(entry: str) -> tuple[str, str]:
    """The name of an entry of `--backbones` and the file of its weights, if it was written NETWORK=FILE.

    Such a backbone is called NETWORK:STEM, after the name of its file, so that two files are two rows.

    >>> backbone_with_file("resnet50@gem=weights/mine.pth"), backbone_with_file("resnet50@gem")
    (('resnet50:mine@gem', 'weights/mine.pth'), ('resnet50@gem', ''))
    """
    name, _, file = entry.partition("=")
    if not file:
        return entry, ""
    network, at, pooling = name.partition("@")
    return f"{network}:{Path(file).stem}{at}{pooling}", file


def _entries(text: str) -> Iterator[tuple[str, str, str]]:
    """What is written, the backbone's name and its file; a list such as `generic` has an entry for each backbone."""
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, file = backbone_with_file(entry)
        for one in backbones.select(name):
            yield (entry if file else one), one, file


def _timm_name(network: str) -> str:
    """timm's name of a network with the tag of its weights, timm's own choice where none is named; ours as they are."""
    name = backbones.TIMM.get(network, network)
    if "." in name or name in backbones.names.OWN:
        return name
    facts: Any = backbones.skeleton(network).network.pretrained_cfg
    return f"{facts['architecture']}.{facts['tag']}" if facts.get("tag") else name

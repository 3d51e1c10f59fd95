"""What a network was pretrained on, where its weights are known, and which test sets it may know from there."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any


@cache
def _known() -> dict[str, Any]:
    return json.loads(resources.files("reports").joinpath("data", "pretraining.json").read_text(encoding="utf-8"))


def data_of(weights: str) -> str:
    """The data behind weights, by the SHA-256 of their file or by timm's tag; empty where that is not known.

    >>> data_of("resnet50.tv_in1k"), data_of("scratch"), data_of("of unknown origin")
    ('imagenet-1k', '', '')
    """
    known = _known()
    tags = [data for tag, data in known["tags"].items() if weights.split(".")[-1].split("_")[-1] == tag]
    return known["weights"].get(weights) or (tags[0] if tags else "")


def told(weights: str, datasets: Iterable[str]) -> str:
    """The pretraining of a network in words, with a mark where test classes or their relatives were in it.

    >>> told("resnet50.tv_in1k", ["cars"]), told("scratch", ["cars"])
    ('pretrained on ImageNet-1k', 'random weights')
    >>> told("resnet50.tv_in1k", ["dogs"])
    'pretrained on ImageNet-1k ⚠ dogs: Stanford Dogs is a part of it'
    """
    if weights == "scratch":
        return "random weights"
    found = _known()["data"].get(data_of(weights))
    if not found:
        return ""
    near = [f"{dataset}: {found['near'][dataset]}" for dataset in sorted(set(datasets)) if dataset in found["near"]]
    return f"pretrained on {found['title']}" + (f" ⚠ {'; '.join(near)}" if near else "")

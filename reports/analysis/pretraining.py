"""What a network was pretrained on, where that is known, and which test sets it may know from there."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MARKS = ("images", "curated", "relatives", "web")
"""What a set may have to do with a dataset, the strongest first."""


@cache
def sets() -> dict[str, dict[str, Any]]:
    """What each set of pretraining images has to do with the datasets, see `reports/data/pretraining.toml`."""
    text = resources.files("reports").joinpath("data/pretraining.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def contamination(datasets: Sequence[str], pretraining: Sequence[str]) -> str:
    """The strongest mark of a dataset, or of the members of a union, among some sets of pretraining images.

    >>> contamination(["dogs"], ["ImageNet-1k"]), contamination(["cars"], ["LVD-142M"])
    ('images', 'curated')
    """
    for mark in MARKS:
        known = [sets().get(name, {}).get(mark, {}) for name in pretraining]
        if any(entry is True or (entry and not set(entry).isdisjoint(datasets)) for entry in known):
            return mark
    return ""


def set_behind(weights: str) -> str:
    """The set behind weights, by the SHA-256 of their file or by timm's tag; empty where that is not known.

    >>> set_behind("resnet50.tv_in1k"), set_behind("scratch"), set_behind("of unknown origin")
    ('ImageNet-1k', '', '')
    """
    tag = weights.split(".")[-1].split("_")[-1]
    return next((name for name, known in sets().items()
                 if weights in known.get("weights", ()) or tag in known.get("tags", ())), "")


def told(weights: str, datasets: Iterable[str]) -> str:
    """The pretraining of a network in words, with a mark where test classes or their relatives were in it.

    >>> told("resnet50.tv_in1k", ["cars"]), told("scratch", ["cars"])
    ('pretrained on ImageNet-1k', 'random weights')
    >>> told("resnet50.tv_in1k", ["dogs"])
    "pretrained on ImageNet-1k ⚠ dogs: Stanford Dogs was built from ImageNet's images"
    """
    if weights == "scratch":
        return "random weights"
    name = set_behind(weights)
    if not name:
        return ""
    reasons = {dataset: why for mark in reversed(MARKS) if isinstance(entry := sets()[name].get(mark), dict)
               for dataset, why in entry.items()}
    near = [f"{dataset}: {reasons[dataset]}" for dataset in sorted(set(datasets)) if dataset in reasons]
    return f"pretrained on {name}" + (f" ⚠ {'; '.join(near)}" if near else "")

"""The numbers of the papers' tables, one by one, with the run of this suite that each is to be held against."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from reports.analysis.paper_catalogue import Item

PARTS = {"uml": ("cub", "cars", "sop", "inshop", "nabirds", "dogs", "flowers", "aircraft"),
         "uml-4": ("cub", "cars", "sop", "inshop")}
"""The datasets of UML's two unions."""
METRICS = {"map": "map@c_released", "map@1000": "map@1000_released", "spectral_decay": "rho"}
"""What a paper computes under a name, where this suite gives the name to something else."""


class Sought(NamedTuple):
    """What must have been measured: on which split of a dataset (`place`), of which method, with which settings.

    The places: `default`, `rung`, `fewshot`, `ags`, `distance`, `structure` of a dataset; of a union `part`, `whole`
    and `harmonic` of one network, `ensemble` and `members` of dataset-specific ones.
    """

    place: str
    dataset: str
    metric: str
    method: str
    backbone: str = ""
    settings: tuple[tuple[str, Any], ...] = ()
    split: int = 0
    part: str = ""


class Cell(NamedTuple):
    """A printed number as it stands in the file; `sought` is None where it is of another paper than its table."""

    row: tuple[str, ...]
    column: tuple[str, ...]
    printed: str
    std: str
    sought: Sought | None


Row = dict[str, str]
_NETWORKS = {"googlenet": "googlenet", "bn-inception": "bninception", "resnet-50": "resnet50", "deit-s": "deit_small",
             "mit-b1": "mit_b1", "vit-s": "vit_small", "vit-b": "vit_base", "vit-l": "vit_large"}
_ABLATIONS: dict[str, tuple[str, tuple[tuple[str, Any], ...]]] = {
    "-CRT": ("crt", (("crt.coded", False),)), "-CRT-Consistency": ("multisimilarity", ()),
    "without perspectives": ("crt", (("crt.shared_gamma", True),)),
    "with shared weights": ("crt", (("crt.shared_branches", True),)),
}


def method_name(printed: str) -> str:
    """The name by which this suite knows a method that a paper prints, with its miner and its boundary beta.

    The row "Imagenet" of Revisiting is `random`: it has the numbers of its table 1, whose last layer is random.

    >>> [method_name(f"{name} (D, $\\\\beta = {beta}$ )") for name in ("Margin", "R-Margin") for beta in (0.6, 1.2)]
    ['margin-b06', 'margin', 'r-margin', 'r-margin-b12']
    >>> [method_name(f"Triplet ({miner})") for miner in "DRSH"]
    ['triplet', 'triplet-random', 'triplet-semihard', 'triplet-softhard']
    >>> method_name("R-Triplet (D, $p = 0.4$ )"), method_name("ArcFace"), method_name("Imagenet")
    ('r-triplet', 'arcface', 'random')
    """
    name, _, detail = printed.lower().partition("(")
    name = {"imagenet": "random", "softmax": "normsoftmax"}.get(name.strip(), re.sub(r"\s*\[.*", "", name).strip())
    beta = re.search(r"beta\s*=\s*([\d.]+)", detail)
    variants = {("margin", "0.6"): "margin-b06", ("r-margin", "1.2"): "r-margin-b12",
                ("triplet", "r"): "triplet-random",
                ("triplet", "s"): "triplet-semihard", ("triplet", "h"): "triplet-softhard"}
    return variants.get((name, beta[1] if beta else detail[:1]), name)


def _metric(row: Row) -> str:
    return METRICS.get(row["metric"], row["metric"])


def _ags(row: Row) -> Iterator[Cell]:
    sought = Sought("ags", row["dataset"], _metric(row), row["method"])
    yield Cell((row["method"],), (row["dataset"], row["metric"]), row["ags"], row["std"], sought)


def _ladder(row: Row) -> Iterator[Cell]:
    sought = Sought("rung", row["dataset"], _metric(row), row["method"], split=int(row["split"]))
    yield Cell((row["method"],), (row["metric"], f"split {row['split']}"), row["value"], "", sought)


def _few_shot(row: Row) -> Iterator[Cell]:
    """Of networks that trained on three quarters of the classes; `part` says how many shots, and before or after."""
    sought = Sought("fewshot", row["dataset"], _metric(row), row["method"], settings=(("validation", True),),
                    split=int(row["split"]), part=f"{row['shots']} {row['use']}")
    yield Cell((f"{row['shots']}-shot", "adapted" if row["use"] == "few" else "before", row["method"]),
               (row["metric"], f"split {row['split']}"), row["value"], row["std"], sought)


def _default_distance(row: Row) -> Iterator[Cell]:
    yield Cell((row["setting"],), (row["dataset"],), row["fid"], row["std"],
               Sought("distance", row["dataset"], "frd", row["setting"]))


def _distance(row: Row) -> Iterator[Cell]:
    yield Cell((row["dataset"],), (f"split {row['split']}",), row["fid"], "",
               Sought("distance", row["dataset"], "frd", "", split=int(row["split"])))


def _objective(row: Row) -> Iterator[Cell]:
    name = re.sub(r"\s*,?\s*\$p = [\d.]+\$ ", "", row["method"])  # p is a dataset's own, the row is the same
    name = name.replace("$\\beta = ", "beta ").replace("$ ", "")
    sampler = row.get("sampler", "")
    yield Cell((name, sampler), (row["dataset"], row["metric"]), row["value"], row["std"],
               Sought("default", row["dataset"], _metric(row), method_name(row["method"]),
                      settings=(("batches", sampler),) if sampler else ()))


def _architecture(row: Row) -> Iterator[Cell]:
    dim = 128 if row["architecture"] == "resnet50" else 512  # section 3.3
    sought = Sought("default", row["dataset"], row["metric"], "random", row["architecture"], (("dim", dim),))
    yield Cell((row["architecture"],), (row["dataset"],), row["value"], "", sought)


def _state_of_the_art(row: Row) -> Iterator[Cell]:
    """Rows of other papers beside the paper's own."""
    own = {"Margin (ours)": "margin", "CRT": "crt"}.get(row["method"])
    sought = Sought("default", row["dataset"], row["metric"], own) if own else None
    yield Cell((row["method"], row["dim"]), (row["dataset"], row["metric"]), row["value"], "", sought)


def _residual(row: Row) -> Iterator[Cell]:
    if row["table"] != "5":
        yield from _state_of_the_art(row)
        return
    network, _, method = row["method"].partition(" ")
    sought = Sought("default", row["dataset"], row["metric"], "crt" if "CRT" in method else "multisimilarity",
                    _NETWORKS[network.lower()])
    yield Cell((network, method), (row["dataset"], row["metric"]), row["value"], "", sought)


def _residual_ablation(row: Row) -> Iterator[Cell]:
    method, settings = _ABLATIONS.get(row["method"], ("crt", ()))
    name, _, count = row["method"].partition(" = ")
    if name == "K_1":
        settings = (("crt.prototypes", int(count)),)
    elif name == "K_2":  # measured with shared weights, as the text above table 10 says
        settings = (("crt.shared_branches", True), ("crt.wide_prototypes", int(count)))
    yield Cell((row["method"],), (row["metric"],), row["value"], "",
               Sought("default", row["dataset"], row["metric"], method, "mit_b1", settings))


def _residual_structure(row: Row) -> Iterator[Cell]:
    method = "crt" if row["method"] == "crt" else "multisimilarity"
    for dataset in PARTS["uml-4"]:
        yield Cell((row["method"],), (dataset,), row[dataset], "",
                   Sought("structure", dataset, METRICS.get(row["measure"], row["measure"]), method))


def _universal(row: Row) -> Iterator[Cell]:
    sought = None if row["setting"].startswith("cnn") else (
        _specific(row) if "dataset-specific" in row["setting"] else _one_network(row))
    yield Cell((row["setting"], row["method"]), (row["dataset"], row["metric"]), row["value"], "", sought)


def _specific(row: Row) -> Sought:
    """Dataset-specific networks: each on its own dataset; their harmonic mean; as one over the union."""
    union, dataset, method = _union(row), row["dataset"], row["method"]
    if dataset == "unified":
        return Sought("ensemble", union, row["metric"], f"ensemble:{method}")
    place, where = ("members", union) if dataset == "harmonic" else ("default", dataset)
    return Sought(place, where, row["metric"], method)


def _one_network(row: Row) -> Sought:
    """A network for the union; tables 5 and 8 are of PUMA with other losses, 4 and 6 of other networks."""
    method, backbone = row["method"].replace("+xbm", "-xbm"), ""
    settings: tuple[tuple[str, Any], ...] = ()
    if row["table"] in ("5", "8"):
        method = "puma" if method == "curricularface" else f"puma:{method}"
    if row["table"] in ("4", "6"):
        network, size = row["setting"][:5], row["setting"][6:]
        backbone = _NETWORKS[network]
        settings = {"512": (("dim", 512),), "12": (("puma.layers", 12),)}.get(size, ())
    place = {"unified": "whole", "harmonic": "harmonic"}.get(row["dataset"], "part")
    return Sought(place, _union(row), row["metric"], method, backbone, settings, part=row["dataset"])


def _union(row: Row) -> str:
    return "uml-4" if row["table"] == "10" else "uml"


_READERS: dict[str, Callable[[Row], Iterator[Cell]]] = {
    "oodml_ags": _ags, "oodml_ladder": _ladder, "oodml_fewshot": _few_shot,
    "oodml_default_vs_iid_fid": _default_distance,
    "oodml_split_fid": _distance, "revisiting_methods": _objective, "revisiting_batch_samplers": _objective,
    "revisiting_architectures": _architecture, "revisiting_sop": _state_of_the_art, "crt_results": _residual,
    "crt_ablation": _residual_ablation, "crt_structure": _residual_structure, "uml_results": _universal,
    "uml_further": _universal,
}


@cache
def _file(name: str) -> list[Row]:
    with resources.files("reports").joinpath(f"data/published/{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def cells(item: Item) -> list[Cell]:
    """The printed numbers of an item in the order of its file; empty where it has none."""
    if not item.file:
        return []
    wanted = {key: {str(one) for one in (value if isinstance(value, list) else [value])}
              for key, value in item.where.items()}
    rows = [row for row in _file(item.file) if all(row[key] in values for key, values in wanted.items())]
    return [cell for row in rows for cell in _READERS[item.file](row) if cell.printed]

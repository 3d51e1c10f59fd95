"""The papers' own tables: as boards, as rows beside ours, and as what a paper says of one method.

They are shown as *published* and take no part in the ranks of runs unless somebody asks for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

import pandas as pd

from reports.aggregate import harmonic_mean
from reports.analysis import paper_catalogue
from reports.analysis.paper_catalogue import RELEASED
from reports.analysis.paper_numbers import METRICS, method_name
from reports.board import Board
from reports.tables.table import Column, Table
from reports.wording import metric_name


@dataclass(frozen=True)
class Paper:
    """A paper whose tables come with the package."""

    key: str
    title: str
    authors: str
    venue: str
    training: str = ""
    """How its networks are trained, where that decides on what its numbers can be held against."""


PAPERS = {
    "oodml": Paper("oodml", "Characterizing Generalization under Out-Of-Distribution Shifts in Deep Metric Learning",
                   "Milbich, Roth, Sinha, Schmidt, Ghassemi, Ommer", "NeurIPS 2021",
                   "512 dimensions, the best of 200 epochs"),
    "revisiting": Paper("revisiting", "Revisiting Training Strategies and Generalization Performance in Deep Metric "
                        "Learning", "Roth, Milbich, Sinha, Gupta, Ommer, Cohen", "ICML 2020",
                        "128 dimensions, the best of 150 epochs"),
    "uml": Paper("uml", "Universal Metric Learning with Parameter-Efficient Transfer Learning", "Kim, Kim, Kwak",
                 "WACV 2025"),
    "crt": Paper("crt", "Coded Residual Transform for Generalizable Deep Metric Learning",
                 "Kan, Liang, Li, Cen, Wang, He", "NeurIPS 2022"),
}
SOURCES = {**PAPERS, RELEASED: Paper(RELEASED, "What the methods' own papers print, with a ResNet-50", "", "own papers",
                                     "512 dimensions, the best epoch, each by a recipe of its own")}
"""Whatever prints a number of a method; the last has no tables and figures of its own."""
Ladder = Iterable[tuple[int, float | None]]
GROUPS = {"dataset-specific": "dataset-specific", "universal-full": "full", "universal-peft": "parameter-efficient"}
_MEANS = ("unified", "harmonic")
IMAGES = {"cub": (5864, 5924), "cars": (8054, 8131), "sop": (59551, 60502), "inshop": (25882, 26830),
          "nabirds": (22909, 25653), "dogs": (10651, 9929), "flowers": (3493, 4696), "aircraft": (5000, 5000)}
"""Training and test images of the datasets as the papers have them, on the default split."""


@cache
def read(name: str) -> pd.DataFrame:
    """One of the CSV files of `published/`."""
    with resources.files("reports").joinpath(f"data/published/{name}.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


def plain_name(printed: str) -> str:
    """The name of a method as a paper prints it, without the marks of its typesetting.

    >>> plain_name("R-Margin (D, $\\\\beta = 0.6$ )")
    'R-Margin (D, β = 0.6)'
    """
    name = re.sub(r"\$([^$]*)\$", lambda maths: maths[1].replace("\\beta", "β").strip(), printed)
    return name.replace(" )", ")").replace(" ,", ",")


def _row(method: str, backbone: str, **more: Any) -> dict[str, Any]:
    return {"method": method, "protocol": "published", "backbone": backbone, "source": "published", "family": "",
            "base_method": method, "baseline": False, **more}


ROUNDED = 0.051
"""Distances are printed with one digit."""
MISPRINTED = {("cars", 86.5): 86.12}
"""Distances that the file released with ooDML has otherwise than the paper prints them."""


def has_papers_ladder(ladder: Ladder | None, dataset: str) -> bool:
    """Whether a ladder of a dataset, (rung, distance) of each rung, is that of the ooDML paper.

    That is told by the distances alone: a copy that lacks a few images has the paper's ladder all the same.

    >>> sop = list(enumerate([3.4, 24.6, 53.5, 99.4, 135.5, 155.3, 189.8, 235.1], 1))
    >>> has_papers_ladder(sop, "sop"), has_papers_ladder(sop[:5], "sop")
    (True, False)
    """
    ours, theirs = _distances(ladder), _printed_distances(dataset)
    return len(ours) == len(theirs) > 0 and all(
        min(abs(a - b), abs(a - MISPRINTED.get((dataset, b), b))) <= ROUNDED for a, b in zip(ours, theirs))


def ladder_differs(ladder: Ladder | None, dataset: str) -> str:
    """In what a ladder is another than that of the ooDML paper; empty without one here or in the paper."""
    ours, theirs = _distances(ladder), _printed_distances(dataset)
    if not theirs or len(ours) < 2 or has_papers_ladder(ladder, dataset):
        return ""
    return (f"the ladder of {dataset} has {len(ours)} rungs at distances from {ours[0]:.1f} to {ours[-1]:.1f} here and "
            f"{len(theirs)} from {theirs[0]} to {theirs[-1]} in the papers")


def _distances(ladder: Ladder | None) -> list[float]:
    return sorted(frd for _, frd in ladder or () if frd is not None)


@cache
def _printed_distances(dataset: str) -> list[float]:
    return sorted(read("oodml_split_fid").query("dataset == @dataset")["fid"].tolist())


@cache
def default_rungs() -> dict[str, int]:
    """The number of the default split on the ladder of the ooDML paper: the split at whose distance it lies.

    >>> default_rungs()
    {'cub': 3, 'cars': 1, 'sop': 1}
    """
    rungs = read("oodml_split_fid")
    default = read("oodml_default_vs_iid_fid").query("setting == 'default'").set_index("dataset")["fid"]
    here = rungs[(rungs["fid"] - rungs["dataset"].map(default)).abs() < ROUNDED]
    return dict(zip(here["dataset"].tolist(), here["split"].tolist()))


def differs(runs: pd.DataFrame, dataset: str, ladder: bool = True) -> str:
    """Why runs on a dataset are not to be held against the papers' numbers; empty if nothing is known against it.

    The dataset must have as many images as theirs and, for an AGS, the ladder must be theirs, by its distances.
    """
    if dataset not in IMAGES:
        return ""
    here = runs[["train_images", "test_images", "ladder"]][runs["dataset"] == dataset]
    if here.empty:
        return ""
    images = int((here["train_images"] + here["test_images"]).max())  # of some rungs classes are removed
    if images != sum(IMAGES[dataset]):
        return f"{dataset} has {images:,} images here and {sum(IMAGES[dataset]):,} in the papers"
    return ladder_differs(max(here["ladder"], key=len), dataset) if ladder else ""


def union_differs(runs: pd.DataFrame) -> str:
    """The same of a union: each member must have as many training images as theirs."""
    for parts in runs["parts"]:
        for name, count in (parts or {}).items():
            if name in IMAGES and count != IMAGES[name][0]:
                return f"{name} has {count:,} training images here and {IMAGES[name][0]:,} in the papers"
    return ""


def ags_rows(datasets: Sequence[str], metric: str, without: Collection[str] = ()) -> Board:
    """Rows of an `ags_board` as the ooDML paper prints them, if it has any of these datasets; AGS as fractions."""
    printed = read("oodml_ags")
    printed = printed[printed["metric"].eq(metric) & printed["dataset"].isin(set(datasets) - set(without))]
    rungs = read("oodml_split_fid").groupby("dataset")["split"].nunique()
    rows, scores = [], []
    for number, (method, group) in enumerate(printed.groupby("method", sort=False)):
        values = group.set_index("dataset")[["ags", "std"]].reindex(list(datasets)) / 100
        for dataset, ags, std in values.itertuples(name=None):
            coverage = f"{rungs[dataset]}/{rungs[dataset]}" if ags == ags else "–"
            scores.append((number, "ags", dataset, ags, std, 5 if ags == ags else 0, coverage))
        covered = len(group)
        scores.append((number, "mean", "", sum(values["ags"]) / len(datasets), float("nan"), 5,
                       f"{covered}/{len(datasets)}"))
        rows.append(_row(str(method), "resnet50", group="full", covered=covered, cells=len(datasets)))
    return Board.of(rows, scores)


def union_rows(parts: Sequence[str], metric: str) -> Board:
    """Rows of a `union_board` from UML's tables 2 and 12, if the union is of exactly its eight datasets.

    The harmonic mean is the printed one; the audit says which of them do not follow from their rows.
    """
    printed = read("uml_results")
    printed = printed[printed["table"].isin((2, 12)) & printed["metric"].eq(metric)]
    if printed.empty or not set(parts) <= set(printed["dataset"]) or len(parts) < 8:
        return Board.of([], [])
    rows, scores = [], []
    for number, ((setting, method), group) in enumerate(printed.groupby(["setting", "method"], sort=False)):
        values = dict(zip(group["dataset"], group["value"] / 100))
        shown = [values[part] for part in parts]
        means = {"arithmetic": sum(shown) / len(shown), "unified": values.get("unified", float("nan")),
                 "harmonic": values.get("harmonic", harmonic_mean(shown))}
        scores += [(number, "recall", part, values[part], float("nan"), 1, "8/8") for part in parts]
        scores += [(number, name, "", value, float("nan"), 1, "8/8") for name, value in means.items()]
        rows.append(_row(str(method), "vit_s16", group=GROUPS[str(setting)], covered=len(parts), cells=len(parts),
                         parameters=float(group["train_params_m"].iloc[0]) * 1e6,
                         weakest=min(parts, key=lambda part: (values[part], part))))
    return Board.of(rows, scores)


def union_datasets() -> list[str]:
    """The eight datasets of UML's union."""
    return sorted(set(read("uml_results")["dataset"]) - set(_MEANS))


def reported(dataset: str) -> bool:
    """Whether the papers print scores for a dataset.

    >>> reported("cars"), reported("glyphs")
    (True, False)
    """
    return dataset in set(_printed()["dataset"])


def says(method: str) -> pd.DataFrame:
    """Every score that the papers print for a method: paper, dataset, what, metric, value as a fraction, std."""
    whole = _printed()
    printed = whole[whole["method"].eq(method)]
    columns = ["paper", "dataset", "what", "metric", "value", "std", "detail"]
    return printed.assign(value=printed["value"] / 100, std=printed["std"] / 100)[columns].reset_index(drop=True)


@cache
def _printed() -> pd.DataFrame:
    parts = []
    frame = read("oodml_ags").rename(columns={"ags": "value"})
    parts.append(frame.assign(paper="oodml", what="AGS"))
    frame = read("oodml_ladder").dropna(subset=["value"])
    frame = frame[frame["split"].eq(frame["dataset"].map(default_rungs()))]
    parts.append(frame.assign(paper="oodml", what="default split"))
    frame = read("revisiting_methods")
    parts.append(frame.assign(paper="revisiting", what="default split", detail=frame["method"].map(plain_name),
                              method=frame["method"].map(method_name)))
    frame = read("uml_results")
    frame = frame[frame["table"].eq(2)].assign(paper="uml", detail=lambda rows: rows["setting"])
    parts.append(frame.assign(what=["union" if setting != "dataset-specific" else "default split"
                                    for setting in frame["setting"]]))
    frame = read("crt_results")
    parts.append(frame[frame["method"].str.lower().str.startswith("crt")].assign(
        paper="crt", what="default split", detail=lambda rows: rows["method"], method="crt"))
    parts.append(read("released_results").assign(paper=RELEASED, what="default split"))
    return pd.concat(parts, ignore_index=True)


def as_printed(runs: pd.DataFrame, paper: str, metric: str) -> str:
    """The column of runs to be held against a paper's: of the best epoch on the test classes, if it prints that."""
    metric = METRICS.get(metric, metric)
    best = f"best-test:{metric}"
    chosen = paper_catalogue.load(paper).epoch == "best-test" and best in runs and runs[best].notna().any()
    return best if chosen else metric


def _wide(frame: pd.DataFrame, rows: list[str], across: list[str], digits: int, name: str, caption: str) -> Table:
    """A long table of percentages as one with a column for each of its datasets or metrics, in their order."""
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    keys: dict[str, None] = {}
    told = [*rows, *across, *(name for name in ("value", "std") if name in frame)]
    for values in zip(*(frame[name].tolist() for name in told)):
        cell: dict[str, Any] = dict(zip(told, values))
        cell["method"] = plain_name(cell["method"])
        key = " ".join(str(cell[part]) for part in across)
        line = lines.setdefault(tuple(cell[part] for part in rows), {part: cell[part] for part in rows})
        line |= {key: cell["value"] / 100, f"{key}:std": cell.get("std", math.nan) / 100}
        keys[key] = None
    wide = pd.DataFrame(list(lines.values())).dropna(axis=1, how="all")
    heads = {"method": "Method", "setting": "Setting", "dim": "Dimensions", "sampler": "Sampler",
             "detail": "Read from"}
    columns = (*(Column(key, heads[key]) for key in rows), *(Column(key, key, "score", digits=digits) for key in keys))
    return Table(name, caption, columns, wide, "As printed.")


def boards() -> list[tuple[Paper, list[Table]]]:
    """The papers with their tables, as printed."""
    ags = read("oodml_ags").rename(columns={"ags": "value"})
    oodml = [_wide(ags[ags["metric"] == metric], ["method"], ["dataset"], 1, f"published-ags-{metric}",
                   f"AGS of {metric_name(metric)} (supplement, table 3)") for metric in ("recall@1", "map@1000")]
    ladder = read("oodml_ladder").dropna(subset=["value"])
    ladder = ladder.assign(column=["split " + str(s) for s in ladder["split"]])
    for number, dataset in ((4, "cub"), (5, "cars"), (6, "sop")):
        here = ladder[(ladder["dataset"] == dataset) & (ladder["metric"] == "recall@1")]
        oodml.append(_wide(here, ["method"], ["column"], 2, f"published-ladder-{dataset}",
                           f"Recall@1 on each split of {dataset} (supplement, table {number})"))
    methods, samplers = read("revisiting_methods"), read("revisiting_batch_samplers")
    here = methods[methods["metric"].isin(("recall@1", "nmi"))]
    revisiting = [_wide(here, ["method"], ["dataset", "metric"], 2, "published-revisiting",
                        "Objectives on the default splits (tables 4 to 6)"),
                  _wide(samplers[samplers["metric"] == "recall@1"], ["method", "sampler"], ["dataset"], 2,
                        "published-samplers", "Recall@1 with different batch samplers (tables 7 to 9)")]
    uml = read("uml_results")
    universal = [_wide(uml[uml["table"] == table], ["setting", "method"], ["dataset"], 1, f"published-uml-{table}",
                       f"Recall@1 (table {table})") for table in (2, 4, 5, 6, 7, 8, 10)]
    precise = uml[(uml["table"] == 12) & (uml["metric"] == "map@r")]
    universal.append(_wide(precise, ["setting", "method"], ["dataset"], 1, "published-uml-12", "map@r (table 12)"))
    crt = read("crt_results")
    residual = [_wide(crt[(crt["table"] == table) & (crt["metric"] == "recall@1")], ["method", "dim"], ["dataset"], 2,
                      f"published-crt-{table}", f"Recall@1 (table {table})") for table in (3, 4, 5)]
    own = _wide(read("released_results"), ["method", "detail"], ["dataset"], 1, "published-released", "Recall@1")
    told = replace(own, note=paper_catalogue.load(RELEASED).note)
    return list(zip(SOURCES.values(), (oodml, revisiting, universal, residual, [told])))

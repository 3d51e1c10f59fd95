"""From runs to boards: AGS over a ladder, harmonic mean over a union, coverage and ranks. Nothing is imputed."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from reports import ReportError
from reports.records import metrics

ROW = ["method", "protocol", "backbone", "source"]
FLOORS = ("frozen", "random")
USUAL = ("default", "union")
"""Kinds of the splits that papers use: the default one of a dataset, the only one of a union."""


def ags(fids: Sequence[float], scores: Sequence[float]) -> float:
    """Aggregated generalisation score: the area under the score over the normalised distance of a ladder.

    With d_i the Fréchet distances in rising order, x_i = (d_i - min d) / (max d - min d) and s_i the scores,
    AGS = sum_i (x_{i+1} - x_i) (s_i + s_{i+1}) / 2. Defined only if every rung has a score.

    >>> ags([10, 20, 50], [80, 70, 40])
    60.0
    """
    x, s = np.asarray(fids, float), np.asarray(scores, float)
    if x.shape != s.shape or x.ndim != 1 or len(x) < 2:
        raise ReportError(f"AGS needs one score for each of at least two rungs, not {len(s)} for {len(x)}")
    if not (np.isfinite(x).all() and np.isfinite(s).all()):
        raise ReportError("AGS is not defined where a rung has no distance or no score")
    if x.max() == x.min():
        raise ReportError("AGS is not defined on a ladder whose rungs are all at the same distance")
    order = np.argsort(x, kind="stable")
    x, s = x[order], s[order]
    return float(np.sum(np.diff(x) * (s[1:] + s[:-1])) / (2 * (x[-1] - x[0])))


def harmonic_mean(values: Iterable[float]) -> float:
    """n / sum_i (1 / v_i): near the smallest value, zero if any is zero.

    >>> harmonic_mean([0.5, 1.0])
    0.6666666666666666
    """
    found = [float(value) for value in values]
    if not found or not all(math.isfinite(value) for value in found):
        raise ReportError("the harmonic mean needs at least one value and none missing")
    if min(found) < 0:
        raise ReportError(f"the harmonic mean is not defined for the negative value {min(found)}")
    return 0.0 if min(found) == 0 else len(found) / math.fsum(1 / value for value in found)


def _variants(frame: pd.DataFrame, name: str, settings: str, within: list[str]) -> pd.Series:
    """Names that tell runs with different settings apart: `margin`, and `margin[beta=0.6]` where beta is not the usual.

    Usual is what more than half of the runs of that name have; without it all of them are told.
    """
    texts: dict[int, dict[str, str]] = {}
    for each in frame[settings]:
        if id(each) not in texts:
            texts[id(each)] = {key: json.dumps(value, sort_keys=True, default=str) for key, value in
                               sorted((each or {}).items())}
    parts = frame[settings].map(lambda each: texts[id(each)])
    labels = frame[name].astype(object).copy()
    mixed = frame[within].assign(key=parts.map(str)).groupby(within, dropna=False)["key"].transform("nunique") > 1
    for _, group in frame[mixed].groupby(within, dropna=False, sort=True):
        here = parts[group.index]
        differing = sorted(key for key in set().union(*here) if len({part.get(key) for part in here}) > 1)
        alike = parts[frame[name] == group[name].iloc[0]]
        usual = {key: _usual([part.get(key, "-") for part in alike]) for key in differing}
        for row, part in zip(group.index, here):
            told = [f"{key}={part.get(key, '-')}" for key in differing if part.get(key, "-") != usual[key]]
            labels[row] = f"{labels[row]}[{','.join(told)}]".replace('"', "") if told else labels[row]
    return labels


def _usual(values: list[str]) -> str | None:
    """What more than half of them are, if anything."""
    value, count = Counter(values).most_common(1)[0]
    return value if 2 * count > len(values) else None


def select(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """(one run for each cell, notes on what was set aside): the newest run of a cell, on the newest ladder.

    Runs of one method with different settings become rows of their own, and so do runs of one protocol with
    different settings and of one backbone with different weights.
    """
    if frame.empty:
        return frame, []
    notes = []
    frame = frame.sort_values(["date", "identity"], kind="stable", na_position="first").reset_index(drop=True)
    ladder = frame["dataset_hash"].astype(str) + frame["ladder"].map(str)
    current = ladder.groupby(frame["dataset"]).transform("last")
    for dataset, count in frame.loc[ladder != current, "dataset"].value_counts(sort=False).sort_index().items():
        notes.append(f"{count} runs on an older ladder of {dataset} are set aside.")
    frame = frame[ladder == current].reset_index(drop=True)
    within = ["method", "protocol", "backbone", "dataset"]
    weights = frame["weights"].map(lambda value: {"weights": value})
    names = {"method": _variants(frame, "method", "settings", within),
             "protocol": _variants(frame, "protocol", "protocol_settings", within),
             "backbone": _variants(frame.assign(weights=weights), "backbone", "weights", within)}
    frame = frame.assign(**names)
    cell = ["dataset", "split", *ROW, "seed"]
    repeated = int(frame.duplicated(cell, keep="last").sum())
    if repeated:
        notes.append(f"{repeated} runs are set aside because a newer run of the same cell and seed is there.")
    return frame.drop_duplicates(cell, keep="last").sort_values(cell, kind="stable").reset_index(drop=True), notes


def labels(frame: pd.DataFrame) -> dict[tuple[str, ...], str]:
    """One name for each row: the method, with protocol, backbone and source where they vary among its rows.

    A floor is called by its method alone where it has one row, whatever backbone its protocol gives it; what was
    submitted is always called so.
    """
    rows = frame[ROW].drop_duplicates()
    named = {}
    for _, group in rows.groupby("method", sort=True):
        varying = [key for key in ROW[1:] if group[key].nunique() > 1]
        for row in group.to_dict("records"):
            told = [key for key in ROW[1:] if key in varying or (key == "source" and row[key] == "submitted")]
            named[tuple(row[key] for key in ROW)] = " · ".join(row[key] for key in ("method", *told))
    return named


def usual(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs on a usual split; all where none is such."""
    here = runs["kind"].isin(USUAL)
    return runs[here] if here.any() else runs


def is_union(frame: pd.DataFrame) -> pd.Series:
    """Which runs are of a union: those with a score for at least one of its parts."""
    parts = [column for column in frame.columns if column.startswith("domain:")]
    return frame[parts].notna().any(axis=1) if parts else pd.Series(False, index=frame.index)


def parts_of_unions(frame: pd.DataFrame) -> set[str]:
    """The names of the parts of unions that any run was scored on."""
    return {column.split(":")[1] for column in frame.columns if column.startswith("domain:")}


def on_ladder(frame: pd.DataFrame) -> pd.DataFrame:
    """The runs that belong to a ladder of at least two rungs."""
    return frame[~is_union(frame) & frame["ladder"].map(lambda rungs: len(rungs or ()) > 1).astype(bool)]


def ags_per_seed(frame: pd.DataFrame, metric: str = "recall@1") -> pd.DataFrame:
    """AGS of each dataset, row and seed, missing unless the seed has a score on every rung; `covered` of `rungs`."""
    keys = ["dataset", *ROW, "seed"]
    runs = on_ladder(_having(frame, metric))
    found: dict[tuple[Any, ...], dict[int, float]] = {}
    ladders = dict(zip(runs["dataset"], runs["ladder"]))
    for *head, split, score in runs[[*keys, "split", metric]].itertuples(index=False, name=None):
        found.setdefault(tuple(head), {})[split] = score
    rows = []
    for key, scores in sorted(found.items()):
        ladder = ladders[key[0]]
        here = [scores.get(rung, math.nan) for rung, _ in ladder]
        covered = sum(math.isfinite(score) for score in here)
        value = ags([frd for _, frd in ladder], here) if covered == len(ladder) else math.nan
        rows.append((*key, value, covered, len(ladder)))
    return pd.DataFrame(rows, columns=[*keys, "ags", "covered", "rungs"])


def _having(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    if metric not in frame:
        known = [column for column in metrics(frame) if frame[column].notna().any()]
        raise ReportError(f"no run has the metric '{metric}'; there are: {', '.join(known) or 'none'}")
    return frame[frame[metric].notna()]


def spread(values: Iterable[float]) -> tuple[float, float, int]:
    """(mean, standard deviation with ddof=1, n) of what is there; a single value has no deviation.

    >>> spread([1.0, 3.0])
    (2.0, 1.4142135623730951, 2)
    """
    found = [value for value in values if math.isfinite(value)]
    if not found:
        return math.nan, math.nan, 0
    return float(np.mean(found)), float(np.std(found, ddof=1)) if len(found) > 1 else math.nan, len(found)


def ags_board(frame: pd.DataFrame, metric: str = "recall@1") -> pd.DataFrame:
    """The ooDML board: a row for each (method, protocol, backbone, source), AGS for each dataset and their mean.

    `DATASET`, `DATASET:std`, `DATASET:n`, `DATASET:coverage` over the seeds with a complete ladder; `mean` only
    where every dataset of the protocol is complete. Ranked within a protocol; a floor and a published row get no
    rank; an incomplete row neither and stands last.
    """
    families = dict(zip(frame[ROW].itertuples(index=False, name=None), frame["family"]))
    found: dict[tuple[str, ...], dict[str, dict[int, float]]] = {}
    needed: dict[str, set[str]] = {}
    rungs: dict[str, int] = {}
    reached: dict[tuple[Any, ...], int] = {}
    for dataset, *key, seed, value, covered, of in ags_per_seed(frame, metric).itertuples(index=False, name=None):
        found.setdefault(tuple(key), {}).setdefault(dataset, {})[seed] = value
        needed.setdefault(key[1], set()).add(dataset)
        rungs[dataset] = of
        cell = (dataset, *key)
        reached[cell] = max(covered, reached.get(cell, 0))
    rows = []
    for row_key, by_dataset in sorted(found.items()):
        row: dict[str, Any] = dict(zip(ROW, row_key)) | {"family": families[row_key], "covered": 0, "cells": 0}
        row["floor"] = row["family"] == "floor" or row["method"].split("[")[0] in FLOORS
        datasets = sorted(needed[row["protocol"]])
        for dataset in datasets:
            row[dataset], row[f"{dataset}:std"], row[f"{dataset}:n"] = spread(by_dataset.get(dataset, {}).values())
            covered = reached.get((dataset, *row_key), 0)
            row[f"{dataset}:coverage"] = f"{covered}/{rungs[dataset]}"
            row["covered"] += covered
            row["cells"] += rungs[dataset]
        seeds = dict.fromkeys(seed for values in by_dataset.values() for seed in values)
        together = [[by_dataset.get(dataset, {}).get(seed, math.nan) for dataset in datasets] for seed in seeds]
        row["mean"] = float(np.mean([row[dataset] for dataset in datasets]))
        _, row["mean:std"], row["mean:n"] = spread(float(np.mean(values)) for values in together)
        row["mean:coverage"] = f"{row['covered']}/{row['cells']}"
        rows.append(row)
    return ranked(pd.DataFrame(rows), "mean", ("protocol",))


def union_board(frame: pd.DataFrame, metric: str = "recall@1") -> pd.DataFrame:
    """The universal board: for each row the score in each part, unified, harmonic and arithmetic mean, weakest part.

    The two means are of the parts' scores as shown, that is of their means over seeds, so that a reader can check
    them; their deviation is that of the means of each seed. Only the default split of a union counts. Ranked by
    the harmonic mean within a dataset and protocol.
    """
    runs = _having(frame, metric)
    runs = runs[is_union(runs)]
    runs = usual(runs)
    rows = []
    for dataset, of_dataset in runs.groupby("dataset", sort=True):
        # a part that no run has a score of is one all the same: without it there is no mean over the parts
        names = dict.fromkeys(name for members in of_dataset["members"] for name in members)
        columns = [f"domain:{name}:{metric}" for name in names]
        of_dataset = of_dataset.reindex(columns=list(dict.fromkeys([*of_dataset.columns, *columns])))
        for key, group in of_dataset.groupby(ROW, sort=True):
            row: dict[str, Any] = {"dataset": dataset} | dict(zip(ROW, key)) | {"family": group["family"].iloc[0]}
            row["floor"] = row["family"] == "floor" or row["method"].split("[")[0] in FLOORS
            row["group"] = ("floor" if row["floor"] else "submitted" if row["source"] == "submitted" else
                            training_group(group["trains"].iloc[0], group["tags"].iloc[0]))
            row["parameters"] = float(group["trainable_parameters"].astype(float).max())
            whole = group[group[columns].notna().all(axis=1)]
            for column in columns:
                name = column.split(":")[1]
                row[name], row[f"{name}:std"], row[f"{name}:n"] = spread(group[column])
            row["unified"], row["unified:std"], row["unified:n"] = spread(group[metric])
            covered = int(group[columns].notna().any(axis=0).sum())
            shown = [row[column.split(":")[1]] for column in columns]
            for name, mean in (("harmonic", harmonic_mean), ("arithmetic", lambda values: float(np.mean(values)))):
                _, row[f"{name}:std"], row[f"{name}:n"] = spread(mean(values) for values in whole[columns].to_numpy())
                row[name] = mean(shown) if covered == len(columns) else math.nan
            row |= {"covered": covered, "cells": len(columns), "harmonic:coverage": f"{covered}/{len(columns)}",
                    "arithmetic:coverage": f"{covered}/{len(columns)}"}
            parts = {column.split(":")[1]: row[column.split(":")[1]] for column in columns}
            row["weakest"] = min(parts, key=lambda part: (parts[part], part)) if covered == len(columns) else ""
            rows.append(row)
    return ranked(pd.DataFrame(rows), "harmonic", ("dataset", "protocol"))


def training_group(trains: str, tags: Iterable[str] | None = None) -> str:
    """The group of UML's table 2 that a method belongs to, from what it says it trains.

    >>> training_group("network, a proxy per class"), training_group("adapters, prompts, head")
    ('full', 'parameter-efficient')
    >>> training_group("8 models: network", ["ensemble"])
    'dataset-specific'
    """
    if "ensemble" in (tags or ()):
        return "dataset-specific"
    return "full" if trains.startswith("network") else "parameter-efficient"


def ranked(board: pd.DataFrame, by: str, within: Sequence[str], published: bool = False) -> pd.DataFrame:
    """The board with a column `rank`, best first within each of its parts, incomplete rows last.

    Floors take no rank, and neither do rows from papers unless `published` asks for it.
    """
    if board.empty:
        names = ["rank", *within, *ROW, "family", "floor", "covered", "cells", by]
        return pd.DataFrame(columns=list(dict.fromkeys(names)))
    counts = ~board["floor"] & board[by].notna() & (published | (board["source"] != "published"))
    scores = board.loc[counts, by]
    parts = scores.groupby([board.loc[counts, key] for key in within]) if within else scores
    place = parts.rank(ascending=False, method="min")
    board = board.assign(rank=place.reindex(board.index), incomplete=board[by].isna())
    share = -board["covered"] / board["cells"]
    board = board.assign(worse=-board[by].fillna(0), share=share)
    board = board.sort_values([*within, "incomplete", "worse", "share", *ROW], kind="stable").reset_index(drop=True)
    return board.drop(columns=["incomplete", "worse", "share"])


def rung_scores(frame: pd.DataFrame, dataset: str, metric: str = "recall@1") -> pd.DataFrame:
    """The cells of a dataset: for each row and rung the mean over seeds, its deviation and n, in order of distance."""
    runs = _having(frame, metric)
    runs = runs[(runs["dataset"] == dataset) & ~is_union(runs)]
    cells = runs.groupby([*ROW, "split"], sort=True)
    board = cells[metric].agg(score="mean", std="std", n="count").reset_index()
    facts = cells[["frd", "kind", "family"]].first().reset_index()
    board = board.merge(facts, on=[*ROW, "split"])
    board["floor"] = (board["family"] == "floor") | board["method"].str.split("[").str[0].isin(FLOORS)
    return board.sort_values([*ROW, "frd", "split"], kind="stable").reset_index(drop=True)

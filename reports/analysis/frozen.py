"""Frozen networks on each dataset: what they are, what they cost, what they saw before, and what training would add."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pandas as pd

from reports import aggregate
from reports.analysis.pretraining import contamination
from reports.analysis.results import Results
from reports.selection import DEFAULT_KINDS, ROW
from reports.tables.table import Column, Table
from reports.wording import metric_name

METHOD = "frozen"
COLUMNS = ["dataset", "metric", "what", "backbone", "protocol", "source", "score", "parameters", "resolution",
           "pooling", "dim", "pretraining", "contamination", "images_per_second", "device", "pareto", "best", "gain"]


DEFAULT = " on the default split"

Scores = dict[tuple[str, ...], float]
"""By method, protocol, backbone and source."""


def pareto(scores: Sequence[float], costs: Sequence[float]) -> list[bool]:
    """Which rows no other beats in score at the same or less cost, nor in cost at the same or a better score.

    >>> pareto([0.5, 0.7, 0.6], [1.0, 3.0, 4.0])
    [True, True, False]
    """
    rows = list(zip(scores, costs))
    return [not any(other >= score and price <= cost and (other, price) != (score, cost) for other, price in rows)
            for score, cost in rows]


def collect(results: Results, metric: str) -> pd.DataFrame:
    """One row a dataset and frozen backbone; see COLUMNS. `gain` is the score of the best method that trains this
    backbone, `best`, less this one's; both are missing where none does.

    The score is AGS where the ladder is whole, else the score on the default split, else the mean over its splits; of a
    dataset the same for all. Where no trained row has that score, the gain is that on the default split, and `best`
    says so.
    """
    runs = results.runs[results.runs[metric].notna()] if metric in results.runs else results.runs.iloc[:0]
    rows: list[dict[str, Any]] = []
    for dataset, here in runs.groupby("dataset", sort=True):
        frozen = here[here["base_method"] == METHOD]
        if frozen.empty:
            continue
        what, scored = _scored(here, metric)
        compared, where = scored, ""
        if not _trained(scored):
            compared, where = _default_split(here, metric), DEFAULT
        trained, own = _trained(compared), []
        for key, group in frozen.groupby(["method", "protocol", "backbone", "source"], sort=True):
            score = scored.get(tuple(map(str, key)), float("nan"))
            if score != score:
                continue
            best = max((row for row in trained if row[2] == key[2]), key=lambda row: trained[row], default=None)
            newest = group.sort_values("date", na_position="first").iloc[-1]
            facts = newest["backbone_facts"] if isinstance(newest["backbone_facts"], dict) else {}
            seen, tested = list(facts.get("pretraining") or ()), [str(dataset), *(newest["members"] or ())]
            own.append({
                "dataset": dataset, "metric": metric, "what": what, "protocol": key[1], "backbone": key[2],
                "source": key[3], "method": key[0], "score": score,
                "parameters": facts.get("parameters") or newest["total_parameters"],
                "resolution": facts.get("resolution"), "pooling": facts.get("pooling"), "dim": facts.get("dim"),
                "pretraining": ", ".join(seen), "contamination": contamination(tested, seen),
                "images_per_second": newest.get("cost:embed_images_per_second"), "device": newest["device"],
                "best": results.labels.get(best, best[0]) + where if best else None,
                "gain": compared[best] - compared.get(tuple(map(str, key)), float("nan")) if best else None})
        rows += _marked(own)
    return pd.DataFrame(rows, columns=[*COLUMNS, "method"])


def _trained(scored: Scores) -> Scores:
    """Those of rows that were trained."""
    return {key: score for key, score in scored.items()
            if key[0] != "random" and not key[0].startswith(METHOD) and score == score}


def _groups(here: pd.DataFrame) -> dict[tuple[str, ...], pd.DataFrame]:
    return {tuple(map(str, key)): group for key, group in here.groupby(ROW, sort=True)}


def _default_split(here: pd.DataFrame, metric: str) -> Scores:
    """The score of each row on the default split: mean over seeds."""
    here = here.loc[here["kind"].isin(DEFAULT_KINDS), [*ROW, metric]]
    scores = {key: group[metric].dropna() for key, group in _groups(here).items()}
    return {key: float(values.mean()) for key, values in scores.items() if len(values)}


def _scored(here: pd.DataFrame, metric: str) -> tuple[str, Scores]:
    """What a dataset's score is, and that of each row: mean over seeds."""
    groups, frozen = _groups(here[[*ROW, metric]]), here["base_method"] == METHOD
    # a frozen network has its AGS also where none of the trained ones was run along the ladder
    seeds = pd.concat([aggregate.ags_per_seed(rows, metric) for rows in (here[frozen], here[~frozen])])
    whole = {key: group["ags"].dropna() for key, group in _groups(seeds).items()}
    if any(len(values) for values in whole.values()):
        means = {key: float(values.mean()) for key, values in whole.items() if len(values)}
        return f"AGS of {metric_name(metric)}", means
    default = _default_split(here, metric)
    if default:
        return f"{metric_name(metric)} on the default split", default
    return f"mean {metric_name(metric)}", {key: float(group[metric].mean()) for key, group in groups.items()}


def _marked(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with `pareto`: by which costs nothing better is to be had; speeds are compared on one device alone."""
    comparisons = [("parameters", rows, "parameters", 1)]
    for device in dict.fromkeys(row["device"] for row in rows if pd.notna(row["device"])):
        comparisons.append(("speed", [row for row in rows if row["device"] == device], "images_per_second", -1))
    found: dict[int, list[str]] = {id(row): [] for row in rows}
    for name, among, key, sign in comparisons:
        known = [row for row in among if pd.notna(row[key])]
        fronts = pareto([row["score"] for row in known], [sign * row[key] for row in known])
        for row in itertools.compress(known, fronts):
            found[id(row)].append(name)
    return [row | {"pareto": ", ".join(found[id(row)])} for row in rows]


def with_extremes(cells: pd.DataFrame) -> pd.DataFrame:
    """Of a ladder's cells those of its frozen networks, if there are two, and of the best and the worst trained row.

    Rows count that have every rung; best and worst are by the mean over rungs. Their label says which they are.
    """
    whole = cells[cells.groupby("label")["split"].transform("nunique") == cells["split"].nunique()]
    untrained = whole[whole["base_method"] == METHOD]
    if untrained["label"].nunique() < 2 or cells["split"].nunique() < 2:
        return cells.iloc[:0]
    untrained = untrained.assign(label=untrained["backbone"], method=untrained["backbone"])
    means = whole[~whole["baseline"].astype(bool)].groupby("label")["score"].mean().sort_values(kind="stable")
    ends = {means.index[-1]: "best trained", means.index[0]: "worst trained"} if len(means) > 1 else {}
    trained = [whole[whole["label"] == label].assign(label=f"{said}: {label}", method=f"{said}: {label}")
               for label, said in ends.items()]
    return pd.concat([untrained, *trained], ignore_index=True)


def table(rows: pd.DataFrame, dataset: str) -> Table:
    """The frozen networks of a dataset, the best first."""
    here = rows[rows["dataset"] == dataset].drop(columns="method")  # a row is a network, and links to no method
    here = here.sort_values("score", ascending=False, kind="stable").reset_index(drop=True)
    what, best = here["what"].iloc[0], here["best"].dropna()
    columns = [Column("backbone", "Network"), Column("score", what, "score"),
               *([Column("gain", "Best trained vs frozen", "gain", "Points by which the best row that trains this "
                         "network lies above it"
                         + (", on the default split" if best.iloc[0].endswith(DEFAULT) else "")),
                  Column("best", "Best trained row")] if len(best) else []),
               *([Column("contamination", "Seen before", "text", "images: images of this dataset are in its "
                         "pretraining set; curated: that was gathered by likeness to this dataset; "
                         "relatives: others of its kind are in it; web: it may be in it")]
                 if here["contamination"].ne("").any() else []),
               Column("pareto", "Pareto", "text", "No other network has a better score at as few parameters, or at "
                      "such a speed on the same device"),
               *(column for column in (
                   Column("parameters", "Parameters", "number", digits=-1),
                   Column("dim", "Dimensions", "number", digits=0),
                   Column("resolution", "Pixels", "number", "Width and height of the images", 0),
                   Column("pooling", "Pooling"), Column(
                       "images_per_second", "Images/s", "number", "The whole embedding pass, images from the disk", 0),
                   Column("pretraining", "Pretrained on")) if here[column.key].replace("", None).notna().any()),
               *(Column(key, head) for key, head in (("protocol", "Protocol"), ("device", "Device"))
                 if here[key].nunique() > 1)]
    return Table(f"frozen-{dataset}", f"Frozen networks on {dataset}: {what}", tuple(columns), here, marked=True)

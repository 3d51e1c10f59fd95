"""One threshold along the ladder: fixed on the nearest split, or on validation classes; its errors on the others."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pandas as pd

from reports.aggregate import spread
from reports.selection import ROW, is_union, row_keys
from reports.storage.operating_points import LEVELS, RATES, rate_at
from reports.tables.boards import row_columns
from reports.tables.notes import bar_note
from reports.tables.table import Column, Table

NEAREST, VALIDATION = "nearest split", "validation classes"
KEYS = ["dataset", "split", "kind", "frd", *ROW, "seed"]
SINGLE = ("opis", "r_auroc")
COLUMNS = [*KEYS, "fixed_on", "rate", "threshold", "false_accepts", "false_rejects", "tar", "open_recall", *SINGLE]


def collect(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a run, false accept rate and way to fix the threshold; runs of records without thresholds are left out.

    `tar` is the share of the positive pairs that is accepted where the threshold is fixed on the split itself. A row
    without the nearest split of its dataset has no threshold to carry along: its errors are missing.
    """
    here = runs[runs["thresholds"].map(_whole)] if len(runs) else runs
    rows: list[tuple[Any, ...]] = []
    order = here.sort_values(["frd", "split"], kind="stable")
    first = dict(order.groupby("dataset")["split"].first())
    for (dataset, *_), group in order.groupby(["dataset", *ROW, "seed"], sort=True):
        nearest = group["thresholds"].iloc[0] if group["split"].iloc[0] == first[dataset] else None
        for *key, kept in group[[*KEYS, "thresholds"]].itertuples(index=False, name=None):
            for rate in RATES:
                name, single = f"{rate:g}", [kept.get(measure) for measure in SINGLE]
                rest = (kept["tar"].get(name), kept["open_recall@1"].get(name), *single)
                fixed = nearest["negative"][LEVELS.index(rate)] if nearest else math.nan
                errors = (rate_at(fixed, kept["negative"], accepts=True),
                          rate_at(fixed, kept["positive"], accepts=False)) if nearest else (math.nan, math.nan)
                rows.append((*key, NEAREST, rate, fixed, *errors, *rest))
                held = kept.get("validation", {}).get(name)
                if held:
                    rows.append((*key, VALIDATION, rate, held["threshold"], held["false_accepts"],
                                 held["false_rejects"], *rest))
    return pd.DataFrame(rows, columns=COLUMNS)


def _whole(kept: Any) -> bool:
    """Whether a record keeps thresholds at all levels; of sets without a pair it keeps a note."""
    try:
        return all(len(kept[side]) == len(LEVELS) and all(math.isfinite(value) for value in kept[side])
                   for side in ("positive", "negative")) and all(
            isinstance(by_rate, dict) for by_rate in (kept["tar"], kept["open_recall@1"], kept.get("validation", {})))
    except (TypeError, KeyError):
        return False


def cells(found: pd.DataFrame, runs: pd.DataFrame, dataset: str, rate: float, measure: str) -> pd.DataFrame:
    """The rungs of a dataset as `aggregate.rung_scores` has them, of a measure at the nearest split's threshold.

    A row with one split is left out: its threshold is its own and drifts nowhere. So is one without the nearest.
    """
    here = found[(found["dataset"] == dataset) & (found["rate"] == rate) & (found["fixed_on"] == NEAREST)]
    known = here[here[measure].notna()].groupby([*ROW, "split"], sort=True)
    scores = known[measure].agg(score="mean", std="std", n="count")
    told = [*ROW, "split", "frd", "kind", "label", "baseline"]
    facts = runs.loc[runs["dataset"] == dataset, told].groupby([*ROW, "split"]).first()
    board = pd.concat([scores, facts.loc[scores.index]], axis=1).reset_index()
    splits = Counter(row_keys(board))
    board = board.loc[[splits[row] > 1 for row in row_keys(board)]]
    return board.sort_values([*ROW, "frd", "split"], kind="stable").reset_index(drop=True)


def laddered(found: pd.DataFrame, runs: pd.DataFrame) -> list[str]:
    """The datasets of which a row keeps thresholds on at least two rungs."""
    single = set(runs.loc[is_union(runs), "dataset"])
    counts = found.groupby(["dataset", *ROW])["split"].nunique().groupby("dataset").max()
    return [str(name) for name, count in counts.items() if count > 1 and name not in single]


def table(found: pd.DataFrame, runs: pd.DataFrame, dataset: str, rate: float) -> Table:
    """Each row on the nearest and on the farthest split at the threshold of the nearest, and means over the ladder.

    Of a ladder on which methods were trained in part, the splits that they have; means only of rows that have them all,
    in which a split counts once, however many seeds it has.
    """
    here = found[(found["dataset"] == dataset) & (found["rate"] == rate)]
    baselines = set(row_keys(runs[runs["baseline"]]))
    trained = here[[key not in baselines for key in row_keys(here)]]
    trained = trained[trained.groupby(ROW)["split"].transform("nunique") > 1]
    splits = set((trained if len(trained) else here)["split"])
    here = here[here["split"].isin(splits)]
    carried = here[here["fixed_on"] == NEAREST]
    ends = carried.sort_values(["frd", "split"])["split"].iloc[[0, -1]].tolist()
    validated = dict(iter(here[here["fixed_on"] == VALIDATION].groupby(ROW)))
    rows = []
    for key, group in carried.groupby(ROW, sort=True):
        row: dict[str, Any] = dict(zip(ROW, key)) | {"baseline": tuple(key) in baselines}
        near, far = (group[group["split"] == split] for split in ends)
        whole = group if group["split"].nunique() == len(splits) else group[:0]
        whole = whole[["open_recall", *SINGLE]].astype(float).groupby(whole["split"]).mean()
        held = validated.get(key, here[:0])
        for name, values in (("near", near["tar"]), ("far", far["tar"]), ("false_accepts", far["false_accepts"]),
                             ("false_rejects", far["false_rejects"]), ("open", whole["open_recall"]),
                             ("r_auroc", whole["r_auroc"]), ("opis", whole["opis"]),
                             ("held", held.loc[held["split"] == ends[1], "false_accepts"])):
            row[name], row[f"{name}:std"], row[f"{name}:n"] = spread(values.astype(float))
        rows.append(row)
    frame = pd.DataFrame(rows).sort_values("far", ascending=False, kind="stable").reset_index(drop=True)
    for name in ("open", "r_auroc", "opis"):  # over rungs as well as seeds: no bars
        frame = frame.drop(columns=[f"{name}:std", f"{name}:n"])
    method, *rest = row_columns(frame)
    shown = f"{100 * rate:g} %"
    columns = [method,
               Column("near", "TAR, nearest", "score", "True accept rate: positive pairs accepted on the nearest split "
                      f"where {shown} of its negative pairs are"),
               Column("far", "TAR, farthest", "score", "The same on the farthest, at a threshold of its own"),
               Column("false_accepts", "False accepts, %", "number", "Negative pairs of the farthest split "
                      f"that the threshold of the nearest accepts; {100 * rate:g} if it did not drift", 2),
               Column("false_rejects", "False rejects, %", "number", "Positive pairs of the farthest split "
                      "that the threshold of the nearest rejects", 1),
               *([Column("held", "False accepts, validation, %", "number", "The same with the threshold of held-out "
                         "training classes", 2)] if frame["held"].notna().any() else []),
               Column("open", "Open-set Recall@1", "score", "Half of the classes have no match in the gallery and "
                      f"{shown} of their images are let through; mean over the ladder"),
               Column("r_auroc", "R-AUROC", "score", "Whether the similarity of the nearest neighbour tells right from "
                      "wrong ones; mean over the ladder"),
               Column("opis", "OPIS × 1,000", "number", "Spread of the operating points of classes; less is more "
                      "consistent; mean over the ladder", 2), *rest]
    note = bar_note(frame, ["near", "far"])
    for name in ("false_accepts", "false_rejects", "held"):
        frame[name] *= 100
    frame["opis"] *= 1000
    return Table(f"thresholds-{dataset}-{rate:g}", f"Thresholds at a false accept rate of {shown} on {dataset}",
                 tuple(columns), frame, note)

"""The tables of a method's card: its settings, how they differ from the rest of the protocol, and what papers say."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

import pandas as pd

from reports import aggregate
from reports.analysis import paper_tables
from reports.safe_text import without_folders
from reports.selection import is_union
from reports.tables.table import Column, Table

_ANYHOW = {"--budget": 1, "--per-gpu": 1, "--gpus-per-run": 1, "--jobs": 1, "--executor": 1, "--ray-address": 1,
           "--slurm": 1, "--runs-per-job": 1, "--retry-failed": 0, "--redo": 0}
"""Options of `oodml run` that change how runs are done and not what comes out, with their number of values."""


@lru_cache(maxsize=1024)
def again(command: str) -> str:
    """The command that does a run again, without what only said how many to do at a time and where.

    Files are called by their names alone.

    >>> again("oodml run --study glyphs --per-gpu 14 --budget 205s"), again("oodml run --study /tmp/photos.toml")
    ('oodml run --study glyphs', 'oodml run --study photos.toml')
    """
    try:
        words = shlex.split(without_folders(command))
    except ValueError:  # not a shell's words: shown as it was recorded
        return command
    kept: list[str] = []
    skip = 0
    for word in words:
        name, equals, _ = word.partition("=")
        if skip:
            skip -= 1
        elif name in _ANYHOW:
            skip = 0 if equals else _ANYHOW[name]
        else:
            kept.append(word)
    return shlex.join(kept)


def settings_table(settings: dict[str, Any], name: str, caption: str) -> Table:
    """Names and values of settings."""
    rows = pd.DataFrame([(key, _text(value)) for key, value in sorted(settings.items())], columns=["key", "value"])
    return Table(name, caption, (Column("key", "Setting"), Column("value", "Value")), rows)


def usual(protocols: list[dict[str, Any]]) -> dict[str, str]:
    """For each key of a protocol the value that most methods were run with; of equally many the first in the sort."""
    most: dict[str, str] = {}
    for key in sorted(set().union(*protocols)):
        values = [_text(protocol[key]) for protocol in protocols if key in protocol]
        most[key] = min(set(values), key=lambda value: (-values.count(value), value))
    return most


def protocol_table(protocol: dict[str, Any], rest: dict[str, str], name: str, caption: str) -> Table:
    """A protocol as one method was run with it; where most methods had another value, that stands beside."""
    rows = [(key, _text(value), "" if rest.get(key, _text(value)) == _text(value) else rest[key])
            for key, value in sorted(protocol.items())]
    columns = (Column("key", "Setting"), Column("value", "Value"), Column("usual", "Most others", "text",
               "The value that most methods of the protocol were run with, where it is another"))
    frame = pd.DataFrame(rows, columns=["key", "value", "usual"])
    return Table(name, caption, columns if frame["usual"].any() else columns[:2], frame)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def paper_says(runs: pd.DataFrame, run: Mapping[Any, Any], name: str) -> Table | None:
    """What papers print for the method of a run beside what was measured here; None without a dataset in common."""
    said = paper_tables.says(run["base_method"].split(":")[0])
    union = is_union(runs)
    here, united = set(runs["dataset"]), bool(union.any())
    alike = cache(lambda what, dataset: not (paper_tables.union_differs(runs[union]) if what == "union" else
                                             paper_tables.differs(runs, dataset, ladder=what == "AGS")))
    rows = []
    for row in said.to_dict("records"):
        known = united if row["what"] == "union" else row["dataset"] in here
        known = known and alike(row["what"], "" if row["what"] == "union" else row["dataset"])
        ours, std, n = _measured(runs, union, row) if known else (float("nan"), float("nan"), 0)
        if n:
            rows.append(row | {"paper": paper_tables.SOURCES[row["paper"]].venue, "paper_value": row["value"],
                               "paper_value:std": row["std"], "ours": ours, "ours:std": std, "ours:n": n,
                               "difference": ours - row["value"]})
    columns = (Column("paper", "Paper"), Column("dataset", "Dataset"), Column("what", "What"),
               Column("metric", "Metric"), Column("detail", "Printed as"),
               Column("paper_value", "Paper says", "score"),
               Column("ours", "We got", "score", "The best epoch on the test classes for papers that print it"),
               Column("difference", "Difference", "gain"))
    if not rows:
        return None
    frame = pd.DataFrame(rows)[[key for key in rows[0] if key not in ("value", "std")]]
    shown = tuple(column for column in columns if column.key != "detail" or frame["detail"].notna().any())
    return Table(name, f"{run['method']}: what papers print and what was measured here", shown, frame, marked=False)


def _measured(runs: pd.DataFrame, union: pd.Series, said: Mapping[Any, Any]) -> tuple[float, float, int]:
    """Our number for what a paper says: AGS on a dataset, the score on its default split, or in a union."""
    dataset, metric = said["dataset"], paper_tables.as_printed(runs, said["paper"], said["metric"])
    if said["what"] == "AGS":
        here = runs[(runs["dataset"] == dataset) & ~union]
        if metric not in here or here.empty:
            return float("nan"), float("nan"), 0
        return aggregate.spread(aggregate.ags_per_seed(here, metric)["ags"])
    if said["what"] == "union":
        column = metric if dataset == "unified" else f"domain:{dataset}:{metric}"
        if column not in runs:  # of most of what a paper prints
            return float("nan"), float("nan"), 0
        here = runs[union]
        if dataset == "unified":  # of the same datasets, or it is another measure
            parts = [f"domain:{part}:{metric}" for part in paper_tables.union_datasets()]
            here = here[here[parts].notna().all(axis=1)] if set(parts) <= set(here) else here.iloc[:0]
        return aggregate.spread(here[column].astype(float))
    here = runs[(runs["dataset"] == dataset) & ~union & (runs["kind"] == "default")]
    return aggregate.spread(here[metric].astype(float)) if metric in here else (float("nan"), float("nan"), 0)

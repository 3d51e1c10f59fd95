"""Methods under other backbones, other batch samplers and other values of a setting, side by side."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from reports import aggregate
from reports.analysis.results import Results
from reports.board import key_of
from reports.overrides import overrides_text
from reports.selection import DEFAULT_KINDS, is_union, with_setting
from reports.tables.table import Column, Table
from reports.wording import metric_name

_HEADS = {"study": "Protocol", "backbone": "Backbone", "source": "Source"}
_UNSCORED = {"evaluate_every", "compile"}
"""Keys that change no score."""
_APART = _UNSCORED | {"backbone", "batches"}
"""And those with a page of their own."""
_FOLLOWS = {"train_shots": ("epochs",)}
"""Keys that change along with another."""


def _side_by_side(runs: pd.DataFrame, rest: list[str], what: str, caption: str, metric: str) -> list[Table]:
    """One table a dataset: methods x variants, AGS where the ladder is whole, else the score on the default split.

    `rest` are the columns in which runs of one variant may differ; a row holds one value of each.
    """
    runs = runs[~runs["baseline"] & runs["variant"].notna()]
    made = []
    keys = ["method", *rest]
    for dataset, here in runs.groupby("dataset", sort=True):
        here = here[here.groupby(keys)["variant"].transform("nunique") > 1]
        if here.empty:
            continue
        laddered = len(aggregate.ags_per_seed(here, metric)["ags"].dropna()) > 0
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        for (*key, variant), group in here.groupby([*keys, "variant"], sort=True):
            values = (aggregate.ags_per_seed(group, metric)["ags"] if laddered else
                      group.loc[group["kind"].isin(DEFAULT_KINDS), metric])
            row, name = rows.setdefault(tuple(key), dict(zip(keys, key))), key_of("variant", str(variant))
            row[name], row[f"{name}:std"], row[f"{name}:n"] = aggregate.spread(values)
        variants = sorted(here["variant"].unique(), key=_by_size)
        said = metric_name(metric)
        what_is_shown = f"AGS of {said}" if laddered else f"{said} on the default split"
        columns = (Column("method", "Method"), *(Column(key, _HEADS[key]) for key in rest if here[key].nunique() > 1),
                   *(Column(key_of("variant", name), name, "score") for name in variants))
        made.append(Table(f"{dataset}-{what}", f"{caption} on {dataset}: {what_is_shown}", columns,
                          pd.DataFrame(list(rows.values())), marked=False))
    return made


def _by_size(variant: str) -> tuple[bool, float, str]:
    """Numbers by their size, before words.

    >>> sorted(["big", "0.4", "0.05"], key=_by_size)
    ['0.05', '0.4', 'big']
    """
    try:
        return False, float(variant), variant
    except ValueError:
        return True, 0.0, variant


def _values(runs: pd.DataFrame, key: str) -> pd.Series:
    """The value of a protocol's key, or of METHOD.KEY, in each run; None where it has none."""
    method, _, setting = key.rpartition(".")
    found = [(values or {}) if not method or method == own else {}
             for own, values in zip(runs["base_method"], runs["settings" if method else "protocol_settings"])]
    return pd.Series([json.dumps(values[setting]).strip('"') if setting in values else None for values in found],
                     runs.index, dtype=object)


def settings(results: Results, metric: str) -> list[Table]:
    """For every key that runs of the same method differ in, and in nothing else, a table a dataset.

    Epochs go with `train_shots`: of fewer images there are more epochs.
    """
    runs = results.runs[results.runs["source"].eq("run") & results.runs["overrides"].notna()]
    keys = sorted({key for each in runs["overrides"] for key in each} - _APART)
    made = []
    for key in keys:
        beside = {key, *_FOLLOWS.get(key, ()), *_UNSCORED, "backbone"}  # which has a column of its own
        rest = runs["overrides"].map(lambda each, beside=beside: overrides_text(
            [{name: pair for name, pair in each.items() if name not in beside}]))
        study = [f"{name}, {text}" if text else name for name, text in zip(runs["base_protocol"], rest)]
        made += _side_by_side(runs.assign(variant=_values(runs, key), study=study, method=runs["base_method"]),
                              ["study", "backbone"], f"setting-{key}", key, metric)
    return made


def relative(results: Results, metric: str) -> list[Table]:
    """A table a dataset: what each value of a key changes against the value of the protocol's file, over all methods.

        (score with the value / score with the file's - 1), mean over methods;   Revisiting DML, figure 2

    A method's score is its mean over seeds and rungs; keys of single methods are left to `settings`.
    """
    runs = results.runs[results.runs["source"].eq("run") & results.runs["overrides"].notna()]
    runs = runs[~runs["baseline"]]
    rows: dict[str, list[dict[str, Any]]] = {}
    place = ["base_method", "base_protocol", "base_backbone", "split", "seed"]
    for dataset, here in runs.groupby("dataset", sort=True):
        changed = here["overrides"].map(lambda each: [key for key in each if key not in _UNSCORED])
        plain = here[changed.map(len) == 0].groupby(place)[metric].mean()
        for key in sorted({keys[0] for keys in changed if len(keys) == 1 and "." not in keys[0]}):
            others = here[changed.map(lambda keys, key=key: keys == [key])]
            at = [name for name in place if name != "base_backbone"] if key == "backbone" else place
            base = plain.groupby(at).mean()
            for value, some in others.groupby(_values(others, key), sort=False):
                both = pd.concat([some.groupby(at)[metric].mean(), base], axis=1, keys=["now", "file"]).dropna()
                scores = both.groupby("base_method").mean()
                mean, std, n = aggregate.spread(scores["now"] / scores["file"] - 1)
                if n and (key != "backbone" or n > 1):  # backbones have a page, and one method tells nothing of them
                    file = json.dumps(some["overrides"].iloc[0][key][0]).strip('"')
                    rows.setdefault(str(dataset), []).append({"key": key, "value": value, "file": file, "change": mean,
                                                              "change:std": std, "change:n": n, "methods": n})
    said = metric_name(metric)
    columns = (Column("key", "Key"), Column("value", "Value"), Column("file", "In the protocol"),
               Column("change", "Change", "gain", f"Relative change of {said} in percent, mean over methods"),
               Column("methods", "Methods", "number", "Run with both values", 0))
    ordered = {dataset: sorted(made, key=lambda row: (row["key"], _by_size(row["value"])))
               for dataset, made in rows.items()}
    return [Table(f"{dataset}-settings", f"Settings on {dataset}: change of {said} against the protocol's value",
                  columns, pd.DataFrame(made), marked=False) for dataset, made in ordered.items()]


def backbones(results: Results, metric: str) -> list[Table]:
    """Methods that were run with several backbones, a table a dataset."""
    runs = results.runs[~is_union(results.runs)]
    runs = runs.assign(variant=runs["backbone"], study=runs["protocol"])
    return _side_by_side(runs, ["study", "source"], "backbones", "Backbones", metric)


def samplers(results: Results, metric: str) -> list[Table]:
    """Methods that were run with several batch samplers, a table a dataset; the method's own is called `own`."""
    names = results.runs["protocol_settings"].map(lambda settings: (settings or {}).get("batches") or "own")
    study = [with_setting(name, {key: value for key, value in setting.items() if key != "batches"})
             for name, setting in zip(results.runs["base_protocol"], results.runs["protocol_setting"])]
    runs = results.runs.assign(variant=names, study=study)[~is_union(results.runs)]
    return _side_by_side(runs, ["study", "backbone", "source"], "samplers", "Batch samplers", metric)

"""Methods under other backbones and other batch samplers, side by side."""

from __future__ import annotations

from typing import Any

import pandas as pd

from reports import aggregate
from reports.analysis.results import Results
from reports.tables.boards import Column, Table

_HEADS = {"study": "Protocol", "backbone": "Backbone", "source": "Source"}


def _plain(name: str) -> str:
    return name.split("[")[0]


def _but(name: str, setting: str) -> str:
    """The name of a protocol without what it says of one setting.

    >>> _but("demo[batches=fr,epochs=3]", "batches"), _but("demo[batches=fr]", "batches"), _but("demo", "batches")
    ('demo[epochs=3]', 'demo', 'demo')
    """
    head, _, told = name.removesuffix("]").partition("[")
    kept = ",".join(part for part in told.split(",") if not part.startswith(f"{setting}="))
    return f"{head}[{kept}]" if kept else head


def _side_by_side(runs: pd.DataFrame, rest: list[str], what: str, caption: str, metric: str) -> list[Table]:
    """One table a dataset: methods x variants, AGS where the ladder is whole, else the score on the default split.

    `rest` are the columns in which runs of one variant may differ; a row holds one value of each.
    """
    floor = runs["family"].eq("floor") | runs["method"].map(_plain).isin(aggregate.FLOORS)
    runs = runs[~floor & ~aggregate.is_union(runs) & runs["variant"].notna()]
    found = []
    keys = ["method", *rest]
    for dataset, here in runs.groupby("dataset", sort=True):
        here = here[here.groupby(keys)["variant"].transform("nunique") > 1]
        if here.empty:
            continue
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        aggregated = False
        for (*key, variant), group in here.groupby([*keys, "variant"], sort=True):
            row = rows.setdefault(tuple(key), dict(zip(keys, key)))
            seeds = aggregate.ags_per_seed(group, metric)
            value = aggregate.spread(seeds["ags"]) if len(seeds) else (float("nan"), float("nan"), 0)
            default = aggregate.spread(group.loc[group["kind"].isin(aggregate.USUAL), metric])
            aggregated |= value[2] > 0
            row[f"{variant}:ags"], row[f"{variant}:default"] = value, default
        chosen = "ags" if aggregated else "default"
        variants = sorted(here["variant"].unique())
        for row in rows.values():
            for variant in variants:
                both = row.pop(f"{variant}:ags", None), row.pop(f"{variant}:default", None)
                mean = both[0 if aggregated else 1]
                row[variant], row[f"{variant}:std"], row[f"{variant}:n"] = mean or (float("nan"), float("nan"), 0)
        told = "AGS of " + metric if chosen == "ags" else f"{metric} on the default split"
        columns = (Column("method", "Method"), *(Column(key, _HEADS[key]) for key in rest if here[key].nunique() > 1),
                   *(Column(name, name, "score") for name in variants))
        found.append(Table(f"{dataset}-{what}", f"{caption} on {dataset}: {told}", columns,
                           pd.DataFrame(list(rows.values())), marked=False))
    return found


def backbones(results: Results, metric: str) -> list[Table]:
    """Methods that were run with several backbones, a table a dataset."""
    runs = results.runs.assign(variant=results.runs["backbone"], study=results.runs["protocol"])
    return _side_by_side(runs, ["study", "source"], "backbones", "Backbones", metric)


def samplers(results: Results, metric: str) -> list[Table]:
    """Methods that were run with several batch samplers, a table a dataset; the method's own is called `own`."""
    names = results.runs["protocol_settings"].map(lambda settings: (settings or {}).get("batches") or "own")
    runs = results.runs.assign(variant=names, study=results.runs["protocol"].map(lambda name: _but(name, "batches")))
    return _side_by_side(runs, ["study", "backbone", "source"], "samplers", "Batch samplers", metric)

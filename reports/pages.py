"""What stands on each page of the site."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from reports import aggregate, figures, tables, views
from reports.rendering import Site, slug
from reports.statistics import kendall_between_rungs


def home(site: Site) -> None:
    """The boards, the rules they follow, the curves behind them, and what has no result."""
    sparks = site.sparks()
    boards, unions = [], []
    for protocol in sorted(site.runs["protocol"].unique()):
        runs = site.runs[(site.runs["protocol"] == protocol)]
        ladder_tables = []
        for metric in site.metrics:
            board = aggregate.with_costs(aggregate.ags_board(runs, metric), runs, metric)
            if len(board):
                table = tables.ags_table(board, metric)
                name = f"ags-{metric}" if len(site.facts["protocols"]) == 1 else f"ags-{protocol}-{metric}"
                ladder_tables.append((metric, site.table(replace(table, name=name), sparks)))
        if ladder_tables:
            boards.append((protocol, ladder_tables))
    for dataset in site.unions:
        unions.append((dataset, _union_tables(site, dataset, "home-")))
    lost = site.table(views.failure_table(site.failures)) if len(site.failures) else None
    curves = []
    for dataset in site.datasets[:4]:
        cells = site.cells(dataset, site.metrics[0])
        if cells["split"].nunique() > 1:
            name = f"home-{slug(dataset)}"
            drawing = figures.ladder_curve(cells, site.look, name, f"{site.metrics[0]} along the ladder of {dataset}",
                                           site.metrics[0])
            curves.append((dataset, site.figure(drawing, name)))
    site.page("index.html", "index.html", boards=boards, union_boards=unions, lost=lost, curves=curves)


def _union_tables(site: Site, dataset: str, prefix: str = "") -> list[tuple[str, dict[str, Any]]]:
    """(protocol, table) of a union, one for each protocol it was run with."""
    runs = site.runs[site.runs["dataset"] == dataset]
    whole = aggregate.union_board(runs, "recall@1")
    found = []
    for protocol in sorted(runs["protocol"].unique()):
        board = whole[whole["protocol"] == protocol]
        name = f"{dataset}" if runs["protocol"].nunique() == 1 else f"{dataset}-{protocol}"
        if len(board):
            table = tables.union_table(board, "recall@1")
            table = tables.without_parts(table) if prefix else table
            found.append((protocol, site.table(replace(table, name=prefix + name))))
    return found


def ladder(site: Site, dataset: str) -> None:
    """The ladder of one dataset: curve, difference to the mean, heat table, gain over the floor, splits."""
    parts = []
    for metric in site.metrics:
        cells = site.cells(dataset, metric)
        if cells.empty:
            continue
        heat = site.table(views.heat_table(site.runs, dataset, metric))
        part: dict[str, Any] = {"metric": metric, "heat": heat, "curve": None, "difference": None, "flips": []}
        if cells["split"].nunique() > 1 and cells["frd"].notna().all():
            for key, relative in (("curve", False), ("difference", True)):
                name = f"{slug(dataset)}-{slug(metric)}-{key}"
                title = f"{metric} along the ladder of {dataset}" + (", difference to the mean" if relative else "")
                drawing = figures.ladder_curve(cells, site.look, name, title, metric, relative)
                part[key] = site.figure(drawing, name)
            flips = kendall_between_rungs(cells)
            ends = cells.sort_values("frd")["split"].iloc[[0, -1]].tolist()
            between = flips[(flips["first"] == ends[0]) & (flips["second"] == ends[1]) & (flips["methods"] > 1)]
            part["flips"] = between.to_dict("records")
        gains = views.gain_table(site.runs, dataset, metric)
        part["gain"] = site.table(gains) if gains and metric == site.metrics[0] else None
        parts.append(part)
    splits = site.table(views.split_table(site.runs, dataset))
    first = site.runs[site.runs["dataset"] == dataset].iloc[0]
    site.page(f"dataset/{slug(dataset)}.html", "dataset.html", dataset=dataset, parts=parts, splits=splits, first=first)


def union(site: Site, dataset: str) -> None:
    """A union: the dot plot of its parts and its board."""
    board = aggregate.union_board(site.runs[site.runs["dataset"] == dataset], "recall@1")
    board = board.assign(label=site.label(board))
    parts = [c.key for c in tables.union_table(board).columns if c.about.endswith("alone")]
    name = f"{slug(dataset)}-dots"
    drawing = figures.union_dots(board, parts, site.look, name, f"recall@1 on the parts of {dataset}", "recall@1")
    site.page(f"union/{slug(dataset)}.html", "union.html", dataset=dataset, boards=_union_tables(site, dataset),
              figure=site.figure(drawing, name), parts=parts)


def method(site: Site, label: str, runs: pd.DataFrame) -> None:
    """The card of a method: rank, settings, all runs with seeds, training curves, command and citation."""
    newest = runs.sort_values(["date", "identity"], na_position="first").iloc[-1]
    name = slug(label)
    drawn = None
    seed = runs["seed"].min()
    curves = [(f"{run['dataset']} {run['split']}", run["curve"])
              for run in runs[runs["seed"] == seed].sort_values(["dataset", "frd"]).to_dict("records")
              if len(run["curve"] or ()) > 1][:12]
    if curves:
        drawing = figures.training_curves(curves, f"{name}-training", f"Training of {label}", site.metrics[0])
        numbers = views.curve_table(curves, site.metrics[0], f"{name}-training", f"Training of {label}, seed {seed}")
        drawn = site.figure(drawing, f"{name}-training") | {"table": site.table(numbers)}
    place = site.board[site.board["method"].eq(newest["method"])]
    place = place[[key == label for key in site.label(place)]]
    commands = sorted({str(command) for command in runs["command"].dropna()})
    said = views.paper_says(aggregate.on_ladder(runs), newest["method"], site.metrics)
    settings = views.settings_table(newest["settings"] or {}, f"{name}-settings", f"Settings of {label}")
    protocol = views.settings_table(newest["protocol_settings"], f"{name}-protocol", f"Protocol {newest['protocol']}")
    site.page(f"method/{name}.html", "method.html", label=label, run=newest, drawn=drawn, commands=commands,
              place=None if place.empty else place.iloc[0], style=site.look[label], seed=seed,
              said=site.table(replace(said, name=f"{name}-paper")) if said else None, settings=site.table(settings),
              protocol=site.table(protocol),
              runs=site.table(views.runs_table(runs, f"{name}-runs", f"All runs of {label}")))

"""What stands on the pages of boards, datasets, unions and methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from reports import selection
from reports.aggregate import key_of
from reports.analysis import correlations, progress, views, wise
from reports.analysis.progress import StudyProgress
from reports.analysis.results import union_parts
from reports.analysis.statistics import kendall_between_rungs
from reports.figures import inline, ladders
from reports.figures import wise as wise_figures
from reports.figures.drawing import Style, styles_of
from reports.html import cards
from reports.html.extras import Extras
from reports.html.rendering import Site, slug
from reports.selection import ROW
from reports.tables import boards as tables


def home(site: Site, studies: Sequence[StudyProgress] = ()) -> None:
    """The boards, the rules they follow, the curves behind them, how far studies are, and what has no result."""
    sparks = site.sparks()
    results = site.results
    boards, unions = [], []
    for protocol in results.protocols:
        by_metric = []
        for metric in site.metrics:
            board = results.ags(metric, protocol)
            if len(board):
                name = f"ags-{metric}" if len(results.protocols) == 1 else f"ags-{protocol}-{metric}"
                by_metric.append((metric, site.table(replace(tables.ags_table(board, metric), name=name), sparks)))
        if by_metric:
            boards.append((protocol, tables.differing(results.ags(by_metric[0][0], protocol)), by_metric))
    for dataset in site.unions:
        unions.append((dataset, _union_tables(site, dataset, "home-")))
    single = [(dataset, site.table(replace(table, name=f"home-{table.name}"))) for dataset in results.without_ladder
              for table in [views.heat_table(results, dataset, site.metrics[0])]]
    lost = site.table(views.failure_table(site.failures)) if len(site.failures) else None
    curves = [(dataset, _curve(site, dataset, site.metrics[0])) for dataset in site.datasets[:4]
              if _has_ladder(site.cells(dataset, site.metrics[0]))]
    covered = [shown | {"table": site.table(shown["table"])} for study in studies
               if (shown := progress.shown(study, site.runs))]
    site.page("index.html", "index.html", boards=boards, union_boards=unions, single=single, lost=lost,
              curves=curves, covered=covered)


def _has_ladder(cells: pd.DataFrame) -> bool:
    return cells["split"].nunique() > 1 and bool(cells["frd"].notna().all())


def _curve(site: Site, dataset: str, metric: str, relative: bool = False) -> dict[str, Any]:
    """The curve of a dataset, or its difference to the mean; drawn once for all pages that show it."""
    name = f"{site.slug(dataset)}-{slug(metric)}-{'difference' if relative else 'curve'}"
    title = f"{metric} along the ladder of {dataset}" + (", difference to the mean" if relative else "")
    cells = site.cells(dataset, metric)
    return site.once(name, lambda: ladders.ladder_curve(cells, site.look, name, title, metric, relative))


def _union_tables(site: Site, dataset: str, prefix: str = "",
                  look: dict[str, Style] | None = None) -> list[tuple[str, str, dict[str, Any]]]:
    """(protocol, in what its runs differ from it, table) of a union, one for each protocol it was run with."""
    boards = {protocol: site.results.universal(dataset, protocol) for protocol in site.results.protocols}
    boards = {protocol: board for protocol, board in boards.items() if len(board)}
    made = []
    for protocol, board in boards.items():
        name = site.slug(dataset) if len(boards) == 1 else f"{site.slug(dataset)}-{protocol}"
        table = tables.union_table(board, "recall@1")
        table = tables.without_parts(table) if prefix else table
        shown = site.table(replace(table, name=prefix + name), look=look)
        made.append((protocol, tables.differing(board), shown))
    return made


def ladder(site: Site, dataset: str, extras: Extras) -> None:
    """The ladder of one dataset: curve, difference to the mean, heat table, flips, gain over frozen, splits."""
    results, short = site.results, site.slug(dataset)
    parts = []
    for metric in site.metrics:
        cells = site.cells(dataset, metric)
        if cells.empty:
            continue
        heat = site.table(replace(views.heat_table(results, dataset, metric), name=f"{short}-{metric}"))
        part: dict[str, Any] = {"metric": metric, "heat": heat, "curve": None, "difference": None, "bump": None,
                                "flips": [], "tau": None, "gain": None}
        if _has_ladder(cells):
            part["curve"] = _curve(site, dataset, metric)
            if metric == site.metrics[0]:
                part |= {"difference": _curve(site, dataset, metric, relative=True), **_flips(site, dataset, cells)}
        if metric == site.metrics[0]:
            gains = views.gain_table(results, dataset, metric)
            part["gain"] = site.table(replace(gains, name=f"{short}-gain")) if gains else None
        parts.append(part)
    splits = site.table(replace(views.split_table(results, dataset), name=f"{short}-splits"))
    site.page(f"dataset/{short}.html", "dataset.html", dataset=dataset, parts=parts, splits=splits,
              laddered=any(part["curve"] for part in parts), pictures=extras.of_splits(site, dataset))


def _flips(site: Site, dataset: str, cells: pd.DataFrame) -> dict[str, Any]:
    """The rank-flip chart and Kendall's tau between rungs, where at least two methods have all rungs."""
    flips = kendall_between_rungs(cells)
    if flips.empty or flips["methods"].max() < 2:
        return {}
    short = site.slug(dataset)
    rungs = views.rungs_of(cells[~cells["baseline"]])
    ends = rungs["split"].iloc[[0, -1]].tolist()
    between = flips[(flips["first"] == ends[0]) & (flips["second"] == ends[1])]
    title = f"Ranks along the ladder of {dataset}"
    drawing = ladders.rank_flips(cells, site.look, f"{short}-flips", title)
    table = views.tau_table(flips, rungs, dataset)
    return {"flips": between.to_dict("records"), "bump": site.figure(drawing, f"{short}-flips"),
            "tau": site.table(replace(table, name=f"{short}-tau"))}


def union(site: Site, dataset: str) -> None:
    """A union: the dot plot of its parts, its board, and whether large parts are favoured."""
    boards = [site.results.universal(dataset, protocol) for protocol in site.results.protocols]
    parts = sorted(set().union(*(union_parts(board) for board in boards)))
    board = pd.concat([board.wide() for board in boards], ignore_index=True)
    board = board[(board["source"] != "published") & ~(board["source"].eq("submitted") & board.duplicated(ROW))]
    board, short = board.assign(label=site.results.label(board)), site.slug(dataset)
    look = styles_of(board["label"].tolist(), site.look)
    drawing = ladders.union_dots(board, parts, look, f"{short}-dots", f"recall@1 on the parts of {dataset}",
                                 "recall@1")
    known = site.runs.loc[(site.runs["dataset"] == dataset) & site.runs["parts"].notna(), "parts"]
    sizes = {part: int(known.iloc[-1].get(part, 0)) for part in parts} if len(known) else {}
    bias = correlation = None
    if len(sizes) > 1 and all(sizes.values()):
        name = f"{short}-size"
        bias = site.figure(ladders.size_bias(board, sizes, look, name, f"Score and training size on {dataset}",
                                             "recall@1"), name)
        correlation = site.table(replace(_bias_table(board, sizes), name=f"{short}-bias"), look=look)
    site.page(f"union/{short}.html", "union.html", dataset=dataset, parts=parts,
              boards=_union_tables(site, dataset, look=look), figure=site.figure(drawing, f"{short}-dots"), bias=bias,
              correlation=correlation)


def _bias_table(board: pd.DataFrame, sizes: dict[str, int]) -> tables.Table:
    """For each row the rank correlation of its scores with the training sizes of the parts."""
    keys = [key_of("recall", part) for part in sizes]
    rows = board[board[keys].notna().all(axis=1)]
    biased = rows.assign(bias=[correlations.spearman(row[keys].astype(float).tolist(), list(sizes.values()))
                               for _, row in rows.iterrows()])
    about = "Spearman correlation of the row's scores with the number of training images of the parts"
    largest_first = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    columns = (*tables.row_columns(biased), tables.Column("bias", "Correlation", "number", about, 2),
               *(tables.Column(key_of("recall", part), f"{part} ({count:,})", "score")
                 for part, count in largest_first))
    keep = [*ROW, *(column.key for column in columns), *(f"{key}:std" for key in keys), "baseline"]
    frame = biased[list(dict.fromkeys(keep))]
    return tables.Table("bias", "recall@1 by training size of the part, largest first", columns, frame, marked=False)


def _training(runs: pd.DataFrame) -> list[tuple[str, list[dict[str, Any]]]]:
    """(name, curve) of runs of one seed: the nearest and the farthest rung of each dataset that were trained."""
    ends_of_ladders = []
    for dataset, here in runs[runs["curve"].map(lambda curve: len(curve or ()) > 1)].groupby("dataset", sort=True):
        rungs = here.sort_values(["frd", "split"])
        ends = rungs.iloc[[0, -1]] if len(rungs) > 1 else rungs
        ends_of_ladders += [(f"{dataset} {split}", curve) for split, curve in zip(ends["split"], ends["curve"])]
    return ends_of_ladders


def _interpolated(site: Site, label: str, runs: pd.DataFrame) -> dict[str, Any] | None:
    """The curves between start and end of a method's runs, where `oodml wise` made some."""
    curves, name, metric = wise.curves(wise.collect(runs), site.metrics[0]), f"{site.slug(label)}-wise", site.metrics[0]
    if curves.empty:
        return None
    drawn = wise_figures.interpolation(curves, name, f"Between start and end of {label}", metric)
    return site.figure(drawn, name) | {"table": site.table(wise.table(curves, metric, name, label))}


def method(site: Site, label: str, runs: pd.DataFrame, extras: Extras) -> None:
    """The card of a method: rank, settings, all runs with seeds, training curves, command and citation."""
    newest = runs.sort_values(["date", "identity"], na_position="first").iloc[-1]
    name = site.slug(label)
    drawn = None
    seed = runs["seed"].min()
    curves = _training(runs[runs["seed"] == seed])
    if curves:
        drawing = inline.training_curves(curves, f"{name}-training", f"Training of {label}", site.metrics[0])
        numbers = views.curve_table(curves, site.metrics[0], f"{name}-training", f"Training of {label}, seed {seed}")
        drawn = site.figure(drawing, f"{name}-training") | {"table": site.table(numbers)}
    place = site.board[[key == label for key in site.results.label(site.board)]] if len(site.board) else site.board
    place = place[place["source"] != "published"] if len(place) else place
    commands = sorted({cards.again(str(command)) for command in runs["command"].dropna()})
    said = cards.paper_says(runs, newest.to_dict(), f"{name}-paper")
    settings = cards.settings_table(newest["settings"] or {}, f"{name}-settings", f"Settings of {label}")
    usual = cards.usual(site.results.protocol_settings[newest["base_protocol"]])
    changes = selection.overrides_text(runs["overrides"])
    differs = f"; differs from its file: {changes}" if changes else ""
    protocol = cards.protocol_table(newest["protocol_settings"], usual, f"{name}-protocol",
                                    f"Protocol {newest['protocol']}{differs}")
    rank = tables.rank_text(place.to_dict("records")[0]) if len(place) else ""
    known = {key: None if tables.missing(value) else value for key, value in newest.items()}
    site.page(f"method/{name}.html", "method.html", label=label, run=known, drawn=drawn, commands=commands,
              place=None if place.empty else place.iloc[0], rank=rank, style=site.look[label], seed=seed,
              said=site.table(said) if said else None, settings=site.table(settings),
              protocol=site.table(protocol), between=_interpolated(site, label, runs),
              card=site.table(cards.settings_table(newest["card"], f"{name}-card", f"Card of {label}"))
              if isinstance(newest["card"], dict) else None, inspected=extras.of_runs(site, runs),
              runs=site.table(views.runs_table(runs, f"{name}-runs", f"All runs of {label}")))

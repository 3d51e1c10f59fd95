"""What stands on the pages Compare and Statistics: rows against each other, and how far that may be chance."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from reports import aggregate
from reports.analysis import comparison, paper_tables, significance, statistics
from reports.analysis.rung_board import rung_board, rungs_of
from reports.figures import comparisons
from reports.html.rendering import Site
from reports.selection import ROW, in_words, ranked_as, row_keys
from reports.storage import by_class
from reports.tables.boards import row_columns
from reports.tables.formats import csv_text
from reports.tables.table import Column, Table
from reports.wording import metric_name

PAIRS_SHOWN = 15
WINS_SHOWN = 12
"""Rows of a table of wins, which has as many columns."""


def compare(site: Site) -> None:
    """Any methods against each other; the choice is made in the page, the table of wins is there without it."""
    metric = site.metrics[0]
    labels, left = comparison.offered(site.results, metric, _reported_first(site, metric))
    if len(labels) < 2:
        return
    site.compared = set(labels)
    cells = comparison.cells(site.results, labels, metric)
    data = {"metric": metric_name(metric), "labels": labels, "ids": [site.slug(label) for label in labels],
            "cells": cells, "hues": [site.look[label].number for label in labels],
            "backbones": [site.backbones[label] for label in labels]}
    site.later("compare.html", "Compare", menu="", groups=_groups(site, labels, cells), data=site.data(data),
               metric=metric, left=left, labels=labels)


def _groups(site: Site, labels: list[str], cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A table of wins for each board's protocol and backbone, of the rows that share the same splits; most first."""
    named = site.runs.drop_duplicates("label").set_index("label")[["protocol", "backbone", "method"]].to_dict("index")
    places: dict[tuple[str, str], list[int]] = {}
    for place, label in enumerate(labels):
        places.setdefault((ranked_as(named[label]["protocol"]), named[label]["backbone"]), []).append(place)
    made: list[dict[str, Any]] = []
    cells = [cell for cell in cells if not cell.get("part")]
    for (protocol, backbone), group in places.items():
        kept, shared = comparison.alike(comparison.of_rows(cells, group), len(group), WINS_SHOWN)
        if len(shared) > 1:  # of a single split the board tells as much
            chosen = comparison.of_rows(shared, kept)
            methods = [named[labels[group[place]]]["method"] for place in kept]
            names = methods if len(set(methods)) == len(methods) else [labels[group[place]] for place in kept]
            table = comparison.versus(chosen, names, f"compare-{len(made) + 1}" if made else "compare")
            counts = Counter((cell["dataset"], cell.get("union", False)) for cell in chosen)
            made.append({"protocol": protocol, "backbone": backbone, "left": len(group) - len(kept),
                         "counts": [(dataset, union, count) for (dataset, union), count in counts.items()],
                         "table": site.table(table)})
    return made


def _reported_first(site: Site, metric: str) -> list[str]:
    """All rows, those on datasets that papers report on first, those with several splits before others."""
    trained = site.runs[~site.runs["baseline"].astype(bool)].groupby("dataset")["split"].nunique()
    first: list[str] = []
    for dataset in sorted(filter(paper_tables.reported, trained.index), key=lambda name: -trained[name]):
        rows = rung_board(site.results, dataset, metric).rows
        cells = site.results.cells(dataset, metric).groupby("label")["split"].nunique()
        ranked = site.results.label(rows[rows["rank"].notna()].sort_values("rank", kind="stable"))
        first += sorted(ranked, key=lambda label: cells.get(label, 0) < 2)
    return list(dict.fromkeys([*first, *site.look]))


def statistical(site: Site) -> None:
    """Tests over the cells of each protocol and backbone, diagrams of critical differences, how firmly ranks stand."""
    cells, metric = site.results.all_cells, site.metrics[0]
    if cells.empty:  # of a union alone
        return
    trained, boards = cells[~cells["baseline"]], aggregate.boards_of(cells)
    trained = trained.assign(board=[boards[key] for key in row_keys(trained)])
    groups = sorted(trained.groupby(["board", "backbone"]), key=lambda one: (-one[1]["label"].nunique(), one[0]))
    tested: list[dict[str, Any]] = []
    every: list[pd.DataFrame] = []
    for key, here in groups:
        protocol, backbone = map(str, key)
        wide = statistics.cell_table(here)
        if min(wide.shape) < 2:
            continue
        wide = wide.loc[[label for label in site.look if label in wide.index]]
        pairs = statistics.wilcoxon_pairs(wide)
        every.append(pairs.assign(protocol=protocol, backbone=backbone))
        tested.append({"protocol": protocol, "backbone": backbone} | _tested(site, wide, pairs, len(tested)))
    if not tested:
        return
    site.files["data/wilcoxon.csv"] = csv_text(pd.concat(every).items())
    stable = [(protocol, site.table(table)) for protocol in site.results.protocols
              for table in [_stability(site, protocol, metric)] if table]
    site.later("statistics.html", "Statistics", tested=tested, stable=stable, metric=metric, few=statistics.FEW,
               resolution=_resolution(site, metric), kept=keeping_queries(site.runs))


def _tested(site: Site, wide: pd.DataFrame, pairs: pd.DataFrame, number: int) -> dict[str, Any]:
    """Friedman's and Wilcoxon's tests over the cells of rows that are ranked together, with figure and tables."""
    ending, first, test = f"-{number + 1}" if number else "", list(wide.index[:PAIRS_SHOWN]), statistics.friedman(wide)
    shown = pairs[pairs["first"].isin(first) & pairs["second"].isin(first)].reset_index(drop=True)
    made: dict[str, Any] = {"test": test, "cells": wide.shape[1], "all_pairs": len(pairs),
                            "pairs": site.table(replace(_pair_table(shown), name=f"wilcoxon-first{ending}")),
                            "significant": int((pairs["holm"] < statistics.ALPHA).sum())}
    if test:
        methods = dict(zip(site.runs["label"], site.runs["method"]))  # all of one protocol and backbone
        named = {methods[label] + " · submitted" * label.endswith(" · submitted"): rank
                 for label, rank in test.ranks.items()}
        drawn = comparisons.critical_differences(replace(test, ranks=named) if len(named) == len(test.ranks) else test,
                                             f"critical{ending}",
                                             f"Mean ranks of {site.metrics[0]} over {wide.shape[1]} cells")
        order = sorted(test.ranks, key=lambda label: test.ranks[label])
        frame = pd.DataFrame({"label": order, "rank_mean": [test.ranks[label] for label in order]})
        made |= {"diagram": site.figure(drawn, f"critical{ending}"), "ranks": site.table(Table(
            f"mean-ranks{ending}", "Mean rank over all cells", (
                Column("label", "Method"), Column("rank_mean", "Mean rank", "number", digits=2)), frame))}
    return made


def _pair_table(pairs: pd.DataFrame) -> Table:
    columns = (Column("first", "First"), Column("second", "Second"), Column("wins", "Wins", "number", digits=0),
               Column("ties", "Ties", "number", digits=0), Column("losses", "Losses", "number", digits=0),
               Column("difference", "Mean difference, points", "gain", "First less second", 2),
               Column("p", "p", "p", "Wilcoxon's signed-rank test, two-sided", 4),
               Column("holm", "p, Holm", "p", "Corrected over all pairs", 4))
    return Table("wilcoxon-first", "Pairs of methods over all splits of all ladders", columns, pairs)


def _stability(site: Site, protocol: str, metric: str) -> Table | None:
    """How often each row keeps its rank, and how often it is first, under resampled classes and seeds."""
    board = site.results.ags(metric, protocol)
    board = board.where(board.rows["rank"].notna()) if len(board) else board
    if len(board) < 2:
        return None
    results, key = site.results, ("mean", "")
    drawn, classes, over_seeds = results.draws(board, metric)
    spread = significance.column_errors(board, key, drawn, classes, over_seeds)
    values, shares = board.column(*key)["score"].to_numpy(float), []
    for network in board.rows["network"].unique():
        rows = np.flatnonzero(board.rows["network"] == network)
        places = significance.stability(values[rows], drawn[key][rows], spread.of(rows))
        if places is None:
            return None
        shares += [(row[place], row[0], row[max(0, place - 1):place + 2].sum()) for row, place in
                   zip(places, board.rows["rank"].to_numpy(int)[rows] - 1)]
    frame = board.rows.reset_index(drop=True)[[*ROW, "network", "rank", "rank:low", "rank:high", "family"]].assign(
        **dict(zip(("keeps", "first", "near"), np.array(shares).T)))
    method, *rest = row_columns(frame)
    columns = (Column("rank", "Rank", "rank"), method,
               Column("keeps", "Keeps its rank, %", "percent", "Share of the draws in which the rank stays"),
               Column("near", "Within one rank, %", "percent", "Share of the draws at most one place away"),
               Column("first", "Is first, %", "percent", "Share of the draws in which the row is the best"), *rest)
    return Table(f"stability-{protocol}", f"Stability of the ranks, protocol {in_words(protocol)}", columns, frame,
                 marked=False, grouped="network")


def _resolution(site: Site, metric: str) -> list[dict[str, Any]]:
    """For each dataset the smallest difference of AGS that a pair of rows typically resolves (95 %)."""
    resolved = []
    for dataset in site.datasets:
        cells = site.results.cells(dataset, metric)
        halves = []
        for split in rungs_of(cells)["split"]:
            here, errors = site.results.rung_errors(dataset, split, metric)
            keep = np.flatnonzero(~here["baseline"].to_numpy(bool))
            half = errors.pair_half_widths()[np.ix_(keep, keep)]
            halves += half[np.triu_indices(len(keep), 1)].tolist()
        known = [half for half in halves if np.isfinite(half)]
        if known:
            resolved.append({"dataset": dataset, "half": float(np.median(known))})
    return resolved


def keeping_queries(runs: pd.DataFrame) -> int:
    """How many runs keep the results of their queries, one by one or summed by class."""
    return sum(map(by_class.kept, runs["path"]))

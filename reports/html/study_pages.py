"""What stands on the pages of studies over all runs: comparison, statistics, structure, few-shot, variants, papers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from reports import aggregate
from reports.analysis import (
    audit,
    comparison,
    correlations,
    factors,
    fewshot,
    galleries,
    paper_tables,
    significance,
    spectra,
    standings,
    statistics,
    transfer,
    tuning,
    views,
)
from reports.figures import spectra as spectrum_figures
from reports.figures import studies
from reports.html import cards
from reports.html.frozen_pages import untrained
from reports.html.markup import slug
from reports.html.rendering import Site
from reports.html.threshold_pages import drift
from reports.selection import ROW
from reports.storage import by_class
from reports.tables import boards as tabular
from reports.tables.boards import Column, Table
from reports.tables.formats import csv_text, to_csv

PAIRS_SHOWN = 15
CELLS_SHOWN = 100


def compare(site: Site) -> None:
    """Any methods against each other; the choice is made in the page, the table of wins is there without it."""
    metric = site.metrics[0]
    labels, left = comparison.offered(site.results, metric, _reported_first(site, metric))
    if len(labels) < 2:
        return
    site.compared = set(labels)
    cells = comparison.cells(site.results, labels, metric)
    table = comparison.versus(cells, labels, shown=20)
    backbones = dict(zip(site.runs["label"], site.runs["backbone"]))
    data = {"metric": metric, "labels": labels, "ids": [site.slug(label) for label in labels], "cells": cells,
            "hues": [site.look[label].number for label in labels], "backbones": [backbones[label] for label in labels]}
    site.later("compare.html", "Compare", menu="", table=site.table(table), data=site.data(data), metric=metric,
               left=left, labels=labels)


def _reported_first(site: Site, metric: str) -> list[str]:
    """All rows, those on datasets that papers report on first, those with several splits before others."""
    trained = site.runs[~site.runs["baseline"].astype(bool)].groupby("dataset")["split"].nunique()
    first: list[str] = []
    for dataset in sorted(filter(paper_tables.reported, trained.index), key=lambda name: -trained[name]):
        rows = views.rung_board(site.results, dataset, metric).rows
        cells = site.results.cells(dataset, metric).groupby("label")["split"].nunique()
        ranked = site.results.label(rows[rows["rank"].notna()].sort_values("rank", kind="stable"))
        first += sorted(ranked, key=lambda label: cells.get(label, 0) < 2)
    return list(dict.fromkeys([*first, *site.look]))


def statistical(site: Site) -> None:
    """Tests over the cells of each protocol and backbone, diagrams of critical differences, how firmly ranks stand."""
    cells, metric = site.results.all_cells, site.metrics[0]
    trained = cells[~cells["baseline"]] if len(cells) else cells
    boards = aggregate.boards_of(cells) if len(cells) else {}
    trained = trained.assign(board=[boards[key] for key in trained[ROW].itertuples(index=False, name=None)])
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
    site.later("statistics.html", "Statistics", tested=tested, stable=stable, metric=metric, few=studies.FEW,
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
        drawn = studies.critical_differences(replace(test, ranks=named) if len(named) == len(test.ranks) else test,
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
               Column("difference", "Mean difference", "gain", digits=2),
               Column("p", "p", "number", "Wilcoxon's signed-rank test, two-sided", 4),
               Column("holm", "p, Holm", "number", "Corrected over all pairs", 4))
    return Table("wilcoxon-first", "Pairs of methods over all splits of all datasets", columns, pairs)


def _stability(site: Site, protocol: str, metric: str) -> Table | None:
    """How often each row keeps its rank, and how often it is first, under resampled classes and seeds."""
    board = site.results.ags(metric, protocol)
    board = board.where(board.rows["rank"].notna()) if len(board) else board
    if len(board) < 2:
        return None
    results, key = site.results, ("mean", "")
    drawn = significance.board_draws(board, results.resamples(metric), results.ladders)
    spread = significance.column_errors(board, key, drawn, results.classes(metric, board.parts("ags")),
                                        significance.board_seeds(board, results.seed_scores(metric), results.ladders))
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
    method, *rest = tabular.row_columns(frame)
    columns = (Column("rank", "Rank", "rank"), method,
               Column("keeps", "Keeps its rank", "score", "Share of the draws, in percent"),
               Column("near", "Within one", "score", "Share of the draws with at most one place of difference"),
               Column("first", "Is first", "score", "Share of the draws in which the row is the best"), *rest)
    return Table(f"stability-{protocol}", f"Stability of the ranks, protocol {protocol}, percent of draws", columns,
                 frame, marked=False, grouped="network")


def _resolution(site: Site, metric: str) -> list[dict[str, Any]]:
    """For each dataset the smallest difference of AGS that a pair of rows typically resolves (95 %)."""
    resolved = []
    for dataset in site.datasets:
        cells = site.results.cells(dataset, metric)
        halves = []
        for split in views.rungs_of(cells)["split"]:
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


def structural(site: Site) -> None:
    """Correlation of structure with scores, and of metrics with each other."""
    points = correlations.cells(site.runs)
    table = correlations.structure_table(points)
    matrix = correlations.metric_matrix(points) if len(points) > 2 else pd.DataFrame()
    if table is None and matrix.shape[0] < 2:
        return
    metric = site.metrics[0]
    sides = {side: correlations.measured(points, side) for side in correlations.SIDES}
    panels = []
    for side, measures in sides.items():
        if measures:
            fitted = correlations.normalised(points, [metric, *measures]).rename(columns=measures)
            title = f"{metric} against the structure of the {side} embeddings"
            panels.append({"side": side} | site.figure(studies.scatters(
                fitted, list(measures.values()), metric, f"scatter-{side}", title), f"scatter-{side}"))
    cells = None
    if panels:
        named = {key: f"{measure}, {side}" for side, measures in sides.items() for key, measure in measures.items()}
        columns = (Column("dataset", "Dataset"), Column("split", "Split"), *tabular.row_columns(points),
                   Column(metric, metric, "score"),
                   *(Column(key, title, "number", digits=3) for key, title in named.items()))
        cells = _beginning(site, Table("structure-cells", "Structure of the embeddings and score of each cell", columns,
                                       points[["dataset", "split", *ROW, metric, *named]], marked=False))
    by_split = correlations.split_table(points, metric)
    drawn_spectra = [site.figure(spectrum_figures.spectra(some, f"spectra-{slug(dataset)}", f"Spectra on {dataset}"),
                                 f"spectra-{dataset}") | {"dataset": dataset}
                     for dataset, some in _by_dataset(spectra.panels(site.runs, metric)).items()]
    drawn_matrix = None
    if matrix.shape[0] > 1:
        drawn_matrix = site.figure(studies.matrix(matrix, "metrics", "Correlation between metrics"), "metrics")
    site.later("structure.html", "Structure", table=site.table(table) if table else None, panels=panels,
               cells=cells, by_split=_beginning(site, by_split) if by_split else None, spectra=drawn_spectra,
               matrix=drawn_matrix,
               numbers=site.table(correlations.matrix_table(matrix)) if matrix.shape[0] > 1 else None)


def _by_dataset(panels: list[spectra.Panel]) -> dict[str, list[spectra.Panel]]:
    datasets: dict[str, list[spectra.Panel]] = {}
    for panel in panels:
        datasets.setdefault(panel.dataset, []).append(panel)
    return datasets


def _beginning(site: Site, table: Table) -> dict[str, Any]:
    """A long table with its first rows on the page, which says so, and all of them in its CSV."""
    if len(table.frame) <= CELLS_SHOWN:
        return site.table(table)
    note = f"The first {CELLS_SHOWN:,} of {len(table.frame):,} rows; the CSV has all."
    shown = site.table(replace(table, frame=table.frame.head(CELLS_SHOWN), note=f"{table.note} {note}".strip()))
    site.files[shown["csv"]] = to_csv(table)
    return shown


def few_shot(site: Site) -> None:
    """Zero-shot, few-shot and the gain of adaptation, for each number of shots."""
    adapted = site.results.fewshot
    metric = site.metrics[0]
    parts = []
    for shots in sorted(adapted.loc[adapted["metric"] == metric, "shots"].unique()):
        cells = fewshot.cells(adapted, metric, int(shots))
        method, *rest = tabular.row_columns(cells)
        columns = (method, Column("dataset", "Dataset"), Column("split", "Split"),
                   Column("frd", "Distance", "number", digits=1), Column("zero", "Zero-shot", "score"),
                   Column("few", "Few-shot", "score"), Column("gain", "Gain", "gain"), *rest)
        table = Table(f"fewshot-{shots}", f"{metric} before and after {shots} shots a class", columns, cells,
                      tabular.bar_note(cells, ["few"]), marked=False)
        parts.append((int(shots), site.table(table)))
    if parts:
        site.later("fewshot.html", "Few-shot", parts=parts, metric=metric)


def across(site: Site) -> None:
    """Networks on the test sets of datasets that they were not trained on."""
    evaluated, metric = transfer.collect(site.runs), site.metrics[0]
    if not (evaluated["metric"] == metric).any():
        return
    parts = [(dataset, site.table(transfer.table(evaluated, site.runs, dataset, metric)))
             for dataset in sorted(evaluated["trained"].unique())]
    site.later("cross.html", "Across datasets", matrix=site.table(transfer.matrix(evaluated, site.runs, metric)),
               parts=parts, metric=metric)


def varied(site: Site) -> None:
    """Backbones, batch samplers and settings, where methods were run with several."""
    for path, head, lead, made in (
            ("backbones.html", "Backbones", "Methods that were run with several backbones, side by side.",
             factors.backbones(site.results, site.metrics[0])),
            ("samplers.html", "Batch samplers", "Methods that were run with several batch samplers, side by side.",
             factors.samplers(site.results, site.metrics[0])),
            ("settings.html", "Settings", "Methods that were run with several values of a setting, all else alike; and "
             "what each value changes, over all methods.",
             [*factors.relative(site.results, site.metrics[0]), *factors.settings(site.results, site.metrics[0])])):
        if made:
            site.later(path, head, template="tables.html", lead=lead, tables=[site.table(table) for table in made])


def tuned(site: Site) -> None:
    """What `oodml tune` tried and chose, and how much it mattered."""
    if site.searches:
        lead = ("Every method was given as many configurations as the others of its dataset. They were compared on "
                "training classes that were held out of training; no test score takes part in the choice.")
        site.later("tuning.html", "Tuning", template="tables.html", lead=lead,
                   tables=[site.table(tuning.board(site.searches)), _beginning(site, tuning.trials(site.searches))])


def retrieved(site: Site) -> None:
    """What the best, the median and the frozen network find for the same queries, where runs left galleries."""
    known = galleries.collect(site.runs)
    if len(known):
        board = standings.of(site.results)
        panels = galleries.chosen(known, board[board["metric"] == site.metrics[0]])
        if panels:
            site.later("gallery.html", "Retrieval", panels=panels)


def papers(site: Site) -> None:
    """The papers' own tables as boards."""
    site.later("published.html", "Published", menu="Papers",
               papers=[(paper, [site.table(table) for table in made]) for paper, made in paper_tables.boards()])


def about(site: Site) -> None:
    """Definitions, rules, the protocols as they were run, and the log of runs."""
    protocols = []
    for name, runs in site.runs.groupby("protocol", sort=True):
        usual: dict[str, Any] = dict(cards.usual(list(runs.drop_duplicates("label")["protocol_settings"])))
        protocols.append(site.table(cards.settings_table(usual, f"protocol-{name}", f"Protocol {name}")))
    site.later("about.html", "About", menu="", methods=sorted(site.look), protocols=protocols,
               log=site.table(views.changelog(site.runs)), bibtex=cards.bibtex(site.facts))
    site.later("submit.html", "Submit", menu="")


def audited(site: Site) -> None:
    """The published aggregates that do not follow from their tables."""
    findings = audit.audit()
    site.later("audit.html", "Audit", menu="Papers", lines=audit.summary(findings),
               table=site.table(audit.audit_table(findings)))


STUDIES = (compare, statistical, structural, few_shot, drift, untrained, across, retrieved, varied, tuned, papers,
           audited, about)

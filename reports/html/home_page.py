"""The home page: a finding beside the first curve, then the boards."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from reports import selection
from reports.analysis import ladder_tables, paper_tables, run_tables, study_progress
from reports.analysis.finding import Finding, finding
from reports.analysis.rung_board import apart, beside_ladder, rung_board
from reports.figures import ladders
from reports.html import dataset_pages
from reports.html.dataset_pages import extent
from reports.html.rendering import Site
from reports.selection import row_keys
from reports.tables.boards import ags_table


@dataclass
class Section:
    """A board of the home page: of whole ladders, of the splits of one that were trained on, or of a union."""

    kind: str
    """`ladder`, `part`, `default` (the default split beside whole ladders) or `union`."""
    id: str
    datasets: list[str]
    tables: list[tuple[str, Any]]
    """(metric, table), the first shown first."""
    of: Any
    """How much was run: `dataset_pages.extent`; None of several ladders."""
    curves: list[tuple[str, list[tuple[str, dict[str, Any]]]]] = field(default_factory=list)
    """(dataset, [(metric, figure)])."""
    protocol: str = ""
    named: bool = False
    """Whether its heading says the protocol, as there are several."""
    beside: bool = False
    """Whether others have the ladder whole."""
    above: bool = False
    """Whether these have a board of their own before this one."""


def write(site: Site) -> None:
    """A finding beside the first curve, then the boards with their curves, what has no result, how far studies are."""
    results, metric = site.results, site.metrics[0]
    boards = [(protocol, results.ags(metric, protocol).parts("ags")) for protocol in results.laddering(metric)]
    boards = [board for board in boards if not _alone(site, *board)]
    boards.sort(key=lambda board: (not any(map(paper_tables.reported, board[1])), -_ranked_runs(site, board[0])))
    partly = dict.fromkeys(results.without_ladder, "")
    partly |= {dataset: beside for dataset in results.laddered if (beside := beside_ladder(results, dataset, metric))}
    lead, found = _lead(site, boards, [dataset for dataset, beside in partly.items() if beside != "default"])
    sections = _sections(site, boards, partly, lead)
    first: list[Any] = next((one.curves for one in sections if one.datasets == lead and one.curves), [])
    leader = site.results.labels.get(found.best, "") if found else ""
    covered = [shown | {"table": site.table(shown["table"])} for study in results.studies
               if (shown := study_progress.shown(study, results.with_controls()))]
    lost = site.table(run_tables.failure_table(site.failures)) if len(site.failures) else None
    # the first screen has a line for each dataset; its other boards follow the first one
    firsts: dict[tuple[str, ...], Section] = {}
    for one in sections:
        firsts.setdefault(tuple(one.datasets), one)
    measured = [(one, extent(site, names[0]) if len(names) == 1 else None) for names, one in firsts.items()]
    site.page("index.html", "index.html", parts=sections, measured=measured, first=first[:1], lost=lost,
              covered=covered, lead=lead, found=found, leader=leader)


def _sections(site: Site, boards: list[tuple[str, list[str]]], partly: dict[str, str],
              lead: list[str]) -> list[Section]:
    """The boards of ladders, of parts of ladders and of unions: those that the page leads with first, then others of
    what papers report on."""
    sections = [_ladder_section(site, protocol, names, len(boards) > 1, number + 1)
                for number, (protocol, names) in enumerate(boards)]
    sections += [_part_section(site, dataset, beside) for dataset, beside in partly.items()]
    for dataset in site.unions:
        sections += [Section("union", f"union-{number + 1}-{site.slug(dataset)}", [dataset], [("", table)],
                             extent(site, dataset), protocol=protocol)
                     for number, (protocol, _, table) in enumerate(dataset_pages.union_tables(site, dataset, "home-"))]
    sections.sort(key=lambda one: (one.datasets != lead, not any(
        map(paper_tables.reported, [*one.datasets, *site.results.parts[one.datasets[0]]])), one.kind == "union"))
    for one in sections:
        if one.datasets != lead:  # thousands of points weigh a page down, and its own has them by all metrics
            one.curves = [(dataset, curves[:1]) for dataset, curves in one.curves]
    return sections


def _ladder_section(site: Site, protocol: str, names: list[str], several: bool, number: int) -> Section:
    """The AGS board of a protocol; of a single ladder without the rows that have a part of it and a board of theirs."""
    made = []
    for metric in site.metrics:
        board = site.results.ags(metric, protocol)
        if not len(board):
            continue
        if len(names) == 1 and beside_ladder(site.results, names[0], metric):
            elsewhere = set(rung_board(site.results, names[0], metric, default=True).keys)
            whole = board.column("mean")["score"].notna()
            board = board.where(whole | ~pd.Series([key in elsewhere for key in board.keys], board.rows.index))
        # by its protocol even where there is but one, so that a link stays true when another comes
        table = replace(ags_table(board, metric), name=f"ags-{protocol}-{metric}")
        made.append((metric, site.table(table, site.sparks(metric))))
    of = extent(site, names[0], site.results.of_protocol(protocol)) if len(names) == 1 else None
    # of several ladders the first by each metric
    curves = [(dataset, curves[:1] if i else curves) for i, dataset in enumerate(names[:4])
              if (curves := _first_curves(site, dataset, whole=True))]
    return Section("ladder", f"ladder-{number}", names, made, of, curves, protocol, named=several)


def _alone(site: Site, protocol: str, names: list[str]) -> bool:
    """Whether a single row has its ladder whole, which stands on the board of those that have a part of it as well."""
    metric = site.metrics[0]
    rows = site.results.ags(metric, protocol).rows
    return (len(names) == 1 and beside_ladder(site.results, names[0], metric) == "part"
            and int(rows["rank"].notna().sum()) == 1)


def _ranked_runs(site: Site, protocol: str) -> int:
    """How many runs are behind the ranks of a protocol's board: the one with the most tells the most."""
    rows = site.results.ags(site.metrics[0], protocol).rows
    ranked = set(row_keys(rows[rows["rank"].notna()]))
    return sum(key in ranked for key in row_keys(site.results.of_protocol(protocol)))


def _part_section(site: Site, dataset: str, beside: str) -> Section:
    """The board of a ladder that methods were trained on a part of; `beside`: others have it whole, `beside_ladder`."""
    made, default = [], beside == "default"
    runs = site.runs[site.runs["dataset"] == dataset]
    rows = set(apart(rung_board(site.results, dataset, site.metrics[0])).keys)
    above = not default and len(rows) < len(set(row_keys(runs)))  # others stand on a board by AGS
    runs = selection.on_default(runs) if default else runs[[key in rows for key in row_keys(runs)]]
    for metric in site.metrics:
        if len(site.cells(dataset, metric)):
            table = ladder_tables.heat_table(site.results, dataset, metric, "default" if default else "trained")
            name = f"home-{site.slug(dataset)}-{'default-' if default else ''}{metric}"
            made.append((metric, site.table(replace(table, name=name))))
    curves = [] if default or above else _first_curves(site, dataset)
    kind, start = ("default", "default") if default else ("part", "single")
    return Section(kind, f"{start}-{site.slug(dataset)}", [dataset], made, extent(site, dataset, runs),
                   [(dataset, curves)] if curves else [], beside=bool(beside), above=above)


def _first_curves(site: Site, dataset: str, whole: bool = False) -> list[tuple[str, dict[str, Any]]]:
    """For each metric the curve of the backbone with most rows, where a trained row or a frozen network has a line.

    `whole`: beside a board of whole ladders, without the rows that have a part of one.
    """
    made = [(metric, dataset_pages.curves(site, dataset, metric)[0]) for metric in site.metrics
            if dataset_pages.has_ladder(cells := site.cells(dataset, metric)) and not ladders.single(cells).all()]
    return [(metric, dataset_pages.curves(site, dataset, metric, whole=True)[0] if whole and figure["gaps"] else figure)
            for metric, figure in made]


def _lead(site: Site, boards: list[tuple[str, list[str]]], partly: list[str]) -> tuple[list[str], Finding | None]:
    """The datasets that the first screen tells of, and the finding on them.

    Those of the first board, of those that papers report on the one with the most runs behind its ranks; where papers
    report on none of them, the dataset that they do report on of which both ends and the most splits of a ladder were
    run, of those that methods were trained on a part of (`partly`).
    """
    metric, names = site.metrics[0], boards[0][1] if boards else []
    others = [] if any(map(paper_tables.reported, names)) else partly
    for dataset in sorted(filter(paper_tables.reported, others), key=lambda name: -extent(site, name)["splits"]):
        board = rung_board(site.results, dataset, metric)
        for split in sorted(set(board.rows["ranked_by"]) - {""}):
            if found := finding(board.where(board.rows["ranked_by"] == split), ("rung", split)):
                return [dataset], found
    return names, finding(site.results.ags(metric, boards[0][0])) if boards else None

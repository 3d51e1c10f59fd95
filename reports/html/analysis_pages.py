"""What stands on the pages of studies over all runs: structure, few-shot, variants, papers; and the list of them."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from typing import Any

import pandas as pd

from reports import citing
from reports.analysis import (
    audit,
    correlations,
    costs,
    factors,
    fewshot,
    galleries,
    measures,
    paper_tables,
    run_tables,
    spectra,
    standings,
    transfer,
    tuned_ags,
    tuning,
)
from reports.figures import comparisons
from reports.figures import spectra as spectrum_figures
from reports.html import cards
from reports.html.comparison_pages import compare, statistical
from reports.html.frozen_pages import untrained
from reports.html.rendering import Site
from reports.html.threshold_pages import drift
from reports.selection import ROW, in_words
from reports.tables.boards import DISTANCE, row_columns
from reports.tables.formats import to_csv
from reports.tables.notes import bar_note
from reports.tables.table import Column, Table
from reports.wording import metric_name

CELLS_SHOWN = 100


def structural(site: Site) -> None:
    """Correlation of structure with scores, and of metrics with each other."""
    points = correlations.cells(site.runs)
    table, released = (correlations.structure_table(points, code) for code in (False, True))
    matrix = correlations.metric_matrix(points) if len(points) > 2 else pd.DataFrame()
    if table is None and released is None and matrix.shape[0] < 2:
        return
    metric = site.metrics[0]
    sides = {side: correlations.measured(points, side) for side in correlations.SIDES}
    panels = []
    for side, named in sides.items():
        if named:
            fitted = correlations.normalised(points, [metric, *named]).rename(columns=named)
            title = f"{metric_name(metric)} against the structure of the {correlations.SIDE_WORDS[side]} embeddings"
            panels.append({"side": side} | site.figure(comparisons.scatters(
                fitted, list(named.values()), metric, f"scatter-{side}", title), f"scatter-{side}"))
    cells = None
    if panels:
        measured = [key for named in sides.values() for key in named]
        columns = (Column("dataset", "Dataset"), Column("split", "Split"), *row_columns(points),
                   Column(metric, metric_name(metric), "score"), *correlations.measure_columns(measured, 3))
        cells = _beginning(site, Table("structure-cells", "Structure of the embeddings and score of each cell", columns,
                                       points[["dataset", "split", *ROW, metric, *measured]], marked=False))
    by_split = correlations.split_table(points, metric)
    drawn_spectra = []
    for dataset, some in _by_dataset(spectra.panels(site.runs, metric)).items():
        name = f"spectra-{site.slug(dataset)}"
        drawn = spectrum_figures.spectra(some, name, f"Spectra on {dataset}")
        drawn_spectra.append(site.figure(drawn, name) | {"dataset": dataset})
    drawn_matrix = None
    if matrix.shape[0] > 1:
        drawn_matrix = site.figure(comparisons.matrix(matrix, "metrics", "Correlation between metrics"), "metrics")
    site.later("structure.html", "Structure", tables=[site.table(one) if one else None for one in (table, released)],
               measures=[measures.of_structure(key) for key in table.frame["measure"].unique()] if table else [],
               panels=panels, cells=cells, by_split=_beginning(site, by_split) if by_split else None,
               spectra=drawn_spectra, matrix=drawn_matrix,
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
        method, *rest = row_columns(cells)
        columns = (method, Column("dataset", "Dataset"), Column("split", "Split"),
                   Column("frd", DISTANCE, "number", digits=1), Column("zero", "Zero-shot", "score"),
                   Column("few", "Few-shot", "score"), Column("gain", "Gain", "gain"),
                   Column("episodes", "Episodes", "number", "Draws of the images that were shown", 0),
                   Column("iterations", "Iterations", "number", "Steps of the adaptation", 0),
                   Column("lr", "Learning rate", "text", "Learning rate of the adaptation", spare=True), *rest)
        table = Table(f"fewshot-{shots}", f"{metric_name(metric)} before and after {shots} shots a class", columns,
                      cells,
                      bar_note(cells, ["few"]), marked=False)
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
                   tables=[*(site.table(table) for table in (tuned_ags.table(site.searches),
                                                             tuning.board(site.searches)) if table),
                           _beginning(site, tuning.trials(site.searches))])


def retrieved(site: Site) -> None:
    """What the best, the median and the frozen network find for the same queries, where runs left galleries."""
    known = galleries.collect(site.runs)
    if len(known):
        board = standings.of(site.results)
        panels = galleries.chosen(known, board[board["metric"] == site.metrics[0]])
        if panels:
            images = sorted({image for panel in panels for _, gallery in panel["rows"] for image in gallery.images})
            contents = [base64.b64decode(image) for image in images]
            # each once, however often it is found
            names = [f"gallery/{hashlib.sha256(content).hexdigest()[:12]}.png" for content in contents]
            site.files |= dict(zip(names, contents))
            site.later("gallery.html", "Retrieval", panels=panels, files=dict(zip(images, names)))


def papers(site: Site) -> None:
    """The papers' own tables as boards."""
    site.later("published.html", "Published", menu="Papers",
               papers=[(paper, [site.table(table) for table in made]) for paper, made in paper_tables.boards()])


def about(site: Site) -> None:
    """Definitions, rules, the protocols as they were run, and the log of runs."""
    protocols = []
    for name, runs in site.runs.groupby("protocol", sort=True):
        usual: dict[str, Any] = dict(cards.usual(list(runs.drop_duplicates("label")["protocol_settings"])))
        protocols.append(site.table(cards.settings_table(usual, f"protocol-{name}", f"Protocol {in_words(str(name))}")))
    site.later("about.html", "About", menu="", methods=sorted(site.look), protocols=protocols,
               log=site.table(run_tables.changelog(site.runs)),
               costs=site.table(costs.table(site.results.with_controls())), bibtex=citing.suite(site.facts),
               structure=measures.STRUCTURE)
    site.later("submit.html", "Submit", menu="")


def audited(site: Site) -> None:
    """The published aggregates that do not follow from their tables."""
    findings = audit.audit()
    site.later("audit.html", "Audit", menu="Papers", lines=audit.summary(findings),
               table=site.table(audit.audit_table(findings)))


STUDIES = (compare, statistical, structural, few_shot, drift, untrained, across, retrieved, varied, tuned, papers,
           audited, about)

"""The page of a dataset along its ladder, and that of a union."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from reports.aggregate import without_gaps
from reports.analysis import baselines, correlations, costs, ladder_tables, own_lengths, reproduction
from reports.analysis.results import union_parts
from reports.analysis.rung_board import beside_ladder, rungs_of
from reports.analysis.statistics import kendall_between_rungs
from reports.board import key_of
from reports.figures import ladders
from reports.figures.printed import printed_and_ours
from reports.html.extras import Extras
from reports.html.markup import slug
from reports.html.rendering import Site
from reports.selection import ROW
from reports.tables.boards import differing, row_columns, union_table, without_parts
from reports.tables.table import Column, Table
from reports.wording import metric_name


def extent(site: Site, dataset: str, runs: pd.DataFrame | None = None) -> dict[str, Any]:
    """How much was run on a dataset: methods that train, how many of them on several splits, splits, and seeds.

    With `runs` how much of these.
    """
    runs = site.runs if runs is None else runs
    runs = runs[runs["dataset"] == dataset]
    trained = runs[~runs["baseline"].astype(bool)]
    trained = trained if len(trained) else runs
    ladder, splits = site.results.ladders.get(dataset) or (), int(trained["split"].nunique())
    each = trained.groupby(["base_method", "protocol", "backbone"])["split"].nunique()
    most = each.groupby("base_method").max()  # a method may have further rows, for other lengths, on some splits alone
    along = most[most > 1]
    return {"methods": int(trained["base_method"].nunique()), "splits": splits, "rungs": len(ladder),
            "along": len(along), "alike": bool(along.eq(splits).all()),
            "seeds": int(trained["seed"].nunique()),
            "fewest": int(trained.groupby(["base_method", "protocol", "backbone"])["seed"].nunique().min())}


def took(site: Site, dataset: str) -> str:
    """What the runs on a dataset took of their devices, those of its control included."""
    runs = site.results.with_controls()
    return costs.told(runs[runs["dataset"] == dataset])


def has_ladder(cells: pd.DataFrame) -> bool:
    return cells["split"].nunique() > 1 and bool(cells["frd"].notna().all())


def by_backbone(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The rows of each backbone that was trained, that of most rows first; they are not held against each other.

    Baselines of a backbone with which nothing was trained, or on one split of a ladder alone, stand beside the first.
    """
    trained = rows[~rows["baseline"].astype(bool)]
    trained = trained[~ladders.single(rows).reindex(trained.index)] if "split" in rows else trained
    count = trained.drop_duplicates("label")["backbone"].value_counts(sort=False)
    names = sorted(count.index, key=lambda name: (-count[name], name)) or [""]
    groups = rows["backbone"].where(rows["backbone"].isin(names), names[0])
    return [(name, rows[groups == name]) for name in names]


_TITLES = {"score": ("curve", ""), "difference": ("difference", ", difference to the mean"),
           "gain": ("gain", ", gain over the frozen backbone")}


def curves(site: Site, dataset: str, metric: str, kind: str = "score", whole: bool = False) -> list[dict[str, Any]]:
    """The curve of a dataset for each backbone (see `ladders.ladder_curve`), drawn once for all pages that show it.

    `whole`: of the rows alone that have every split.
    """
    ending, said = _TITLES[kind]
    drawn, known = [], baselines.gain_over_frozen(site.cells(dataset, metric))
    if whole:
        ending += "-whole"
        known = known[known.groupby("label")["split"].transform("nunique") == known["split"].nunique()]
    for number, (backbone, cells) in enumerate(by_backbone(known)):
        if kind != "score" and without_gaps(cells[(kind != "gain") | cells["gain"].notna()]).empty:
            continue
        name = f"{site.slug(dataset)}-{slug(metric)}-{ending}" + (f"-{slug(backbone)}" if number else "")
        title = f"{metric_name(metric)} along the ladder of {dataset}{said}, {backbone}"
        draw = partial(ladders.ladder_curve, cells, site.look, name, title, metric, kind)
        alone = cells.loc[ladders.single(cells), "label"].nunique()
        figure = site.figure_once(name, draw)
        drawn.append(figure | {"backbone": backbone, "alone": alone, "banded": bool(cells["std"].notna().any()),
                               "gaps": 'class="gap"' in figure["svg"]})
    return drawn


def union_tables(site: Site, dataset: str, prefix: str = "") -> list[tuple[str, str, dict[str, Any]]]:
    """(protocol, in what its runs differ from it, table) of a union, one for each protocol it was run with."""
    boards, made = site.results.boards("recall@1", dataset), []
    for protocol, board in boards.items():
        name = site.slug(dataset) if len(boards) == 1 else f"{site.slug(dataset)}-{protocol}"
        table = union_table(board, "recall@1")
        table = without_parts(table) if prefix else table
        shown = site.table(replace(table, name=prefix + name))
        made.append((protocol, differing(board), shown))
    return made


def ladder(site: Site, dataset: str, extras: Extras) -> None:
    """The ladder of one dataset: curve, difference to the mean, heat table, flips, gain over frozen, splits."""
    results, short = site.results, site.slug(dataset)
    parts = []
    for metric in site.metrics:
        cells = site.cells(dataset, metric)
        if cells.empty:
            continue
        heat = site.table(replace(ladder_tables.heat_table(results, dataset, metric), name=f"{short}-{metric}"))
        part: dict[str, Any] = {"metric": metric, "heat": heat, "default": None, "studies": [], "curves": [],
                                "differences": [], "flips": [], "gain": None, "gains": [], "fixed_test": []}
        if beside_ladder(results, dataset, metric):
            table = ladder_tables.heat_table(results, dataset, metric, "default")
            part["default"] = site.table(replace(table, name=f"{short}-default-{metric}"))
        for study, own in own_lengths.of_part(results, dataset):
            table = ladder_tables.heat_table(own, dataset, metric, "trained")
            part["studies"].append((study, site.table(replace(table, name=f"{short}-{study.name}-{metric}"))))
        if has_ladder(cells):
            part["curves"] = curves(site, dataset, metric)
            part["fixed_test"] = _fixed_test(site, dataset, metric)
            if metric == site.metrics[0]:
                part |= {"differences": curves(site, dataset, metric, "difference"),
                         "flips": _flips(site, dataset, cells), "gains": curves(site, dataset, metric, "gain")}
        if metric == site.metrics[0]:
            gains = ladder_tables.gain_table(results, dataset, metric)
            part["gain"] = site.table(replace(gains, name=f"{short}-gain")) if gains else None
        parts.append(part)
    splits = site.table(replace(ladder_tables.split_table(results, dataset), name=f"{short}-splits"))
    papers = [(one, site.table(replace(one.table, name=f"{short}-{one.paper.key}")), _printed(site, short, one))
              for one in reproduction.default_split(site.runs, dataset)]
    site.page(f"dataset/{short}.html", "dataset.html", dataset=dataset, parts=parts, splits=splits, papers=papers,
              close=reproduction.CLOSE, extent=extent(site, dataset), pictures=extras.of_splits(site, dataset),
              laddered=any(part["curves"] for part in parts), took=took(site, dataset),
              ladder=results.pinned.get(dataset))


def _printed(site: Site, short: str, one: reproduction.Reproduction) -> dict[str, Any]:
    """The figure of a paper's numbers beside ours."""
    name = f"{short}-{one.paper.key}-printed"
    return site.figure(printed_and_ours(one.table.frame, reproduction.CLOSE, name, one.table.caption,
                                        reproduction.METRIC), name)


def _fixed_test(site: Site, dataset: str, metric: str) -> list[dict[str, Any]]:
    """For each backbone the curves of rows that also ran with the hardest test classes on every split."""
    control = site.results.fixed_test_cells(dataset, metric)
    cells = site.cells(dataset, metric)
    cells = cells[cells["label"].isin(control["label"])]
    made = []
    for number, (backbone, rows) in enumerate(by_backbone(cells) if len(cells) else ()):
        name = f"{site.slug(dataset)}-{slug(metric)}-fixed-test" + (f"-{slug(backbone)}" if number else "")
        drawn = ladders.fixed_test_curve(rows, control, site.look, name,
                                         f"{metric_name(metric)} on {dataset} with fixed test classes, {backbone}",
                                         metric)
        made.append(site.figure(drawn, name) | {"backbone": backbone})
    return made


def _flips(site: Site, dataset: str, every: pd.DataFrame) -> list[dict[str, Any]]:
    """For each backbone the rank-flip chart and Kendall's tau between the rungs that methods have in common."""
    made = []
    for number, (backbone, cells) in enumerate(by_backbone(every)):
        cells = without_gaps(cells)
        if cells["label"].nunique() < 2:
            continue
        flips = kendall_between_rungs(cells)
        short = site.slug(dataset) + (f"-{slug(backbone)}" if number else "")
        rungs = rungs_of(cells)
        ends = rungs["split"].iloc[[0, -1]].tolist()
        between = flips[(flips["first"] == ends[0]) & (flips["second"] == ends[1])]
        title = f"Ranks along the ladder of {dataset}, {backbone}"
        drawing = ladders.rank_flips(cells, site.look, f"{short}-flips", title)
        table = ladder_tables.tau_table(flips, rungs, f"{dataset}, {backbone}")
        made.append({"backbone": backbone, "rungs": len(rungs), "ends": between.to_dict("records"),
                     "figure": site.figure(drawing, f"{short}-flips"),
                     "tau": site.table(replace(table, name=f"{short}-tau"))})
    return made


def union(site: Site, dataset: str) -> None:
    """A union: its board, the score on its parts, and whether large parts are favoured, each backbone by itself."""
    boards = site.results.boards("recall@1", dataset).values()
    parts = sorted(set().union(*(union_parts(board) for board in boards)))
    board = pd.concat([board.wide() for board in boards], ignore_index=True)
    # what was submitted, and a network that is not trained, stand on the boards of several protocols
    board = board[(board["source"] != "published") & ~board.duplicated(ROW)]
    board, short = board.assign(label=site.results.label(board)), site.slug(dataset)
    figures, bias, correlation = [], [], None
    known = site.runs.loc[(site.runs["dataset"] == dataset) & site.runs["parts"].notna(), "parts"]
    sizes = {part: int(known.iloc[-1].get(part, 0)) for part in parts} if len(known) else {}
    sized = len(sizes) > 1 and all(sizes.values())
    for number, (backbone, rows) in enumerate(by_backbone(board)):
        ending = f"-{slug(backbone)}" if number else ""
        drawn = ladders.union_parts(rows, parts, site.look, f"{short}-parts{ending}",
                                    f"recall@1 on the parts of {dataset}, {backbone}", "recall@1")
        figures.append(site.figure(drawn, f"{short}-parts{ending}") | {"backbone": backbone})
        if sized:
            drawn = ladders.size_bias(rows, sizes, site.look, f"{short}-size{ending}",
                                      f"Score and training size on {dataset}, {backbone}", "recall@1")
            bias.append(site.figure(drawn, f"{short}-size{ending}") | {"backbone": backbone})
    if sized:
        correlation = site.table(replace(_bias_table(board, sizes), name=f"{short}-bias"))
    site.page(f"union/{short}.html", "union.html", dataset=dataset, parts=parts, boards=union_tables(site, dataset),
              figures=figures, bias=bias, correlation=correlation, took=took(site, dataset),
              ladder=site.results.pinned.get(dataset))


def _bias_table(board: pd.DataFrame, sizes: dict[str, int]) -> Table:
    """For each row the rank correlation of its scores with the training sizes of the parts."""
    keys = [key_of("recall", part) for part in sizes]
    rows = board[board[keys].notna().all(axis=1)]
    biased = rows.assign(bias=[correlations.spearman(row[keys].astype(float).tolist(), list(sizes.values()))
                               for _, row in rows.iterrows()])
    about = "Spearman correlation of the row's scores with the number of training images of the parts"
    largest_first = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    columns = (*row_columns(biased), Column("bias", "Correlation", "number", about, 2),
               *(Column(key_of("recall", part), f"{part} ({count:,})", "score")
                 for part, count in largest_first))
    keep = [*ROW, *(column.key for column in columns), *(f"{key}:std" for key in keys), "baseline"]
    frame = biased[list(dict.fromkeys(keep))]
    return Table("bias", "Recall@1 by training size of the part, largest first", columns, frame, marked=False)

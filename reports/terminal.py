"""The ranking as the terminal shows it."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from reports import aggregate
from reports.analysis import study_progress
from reports.analysis.ladder_tables import heat_table
from reports.analysis.results import Results
from reports.analysis.rung_board import beside_ladder, rung_board
from reports.safe_text import one_line, printable
from reports.selection import on_default, row_keys
from reports.tables import formats
from reports.tables.boards import ags_table, differing, union_table, without_parts
from reports.wording import metric_name


def summary(results: Results, lost: pd.DataFrame, metric: str = "recall@1") -> str:
    """The boards of each protocol, each union and each dataset without a ladder; lines on studies and lost runs."""
    aggregate.having(results.runs, metric)  # a board has a part of the runs, and names a part of their metrics
    blocks = []
    for protocol in results.protocols:
        board = results.ags(metric, protocol)
        if protocol in results.laddering(metric):
            title = (f"AGS of {metric_name(metric)} along the ladder of {' and '.join(board.parts('ags'))}, "
                     f"protocol {protocol} (percent, higher is better){differing(board)}")
            blocks.append(f"{title}\n\n{formats.to_text(ags_table(board, metric))}")
        for dataset in results.unions:
            part = results.universal(dataset, protocol, metric)
            if len(part):
                title = (f"{metric_name(metric)} on {dataset}, protocol {protocol}, ranked by the harmonic mean "
                         f"(percent){differing(part)}")
                blocks.append(f"{title}\n\n{formats.to_text(without_parts(union_table(part, metric)))}")
    beside = {dataset: kind for dataset in results.laddered if (kind := beside_ladder(results, dataset, metric))}
    for dataset in (*results.without_ladder, *beside):
        table = heat_table(results, dataset, metric, "default" if beside.get(dataset) == "default" else "trained")
        blocks.append(f"{table.caption} (percent)\n\n{formats.to_text(table)}")
    lines = [*results.notes, *_on_no_board(results, metric, beside)]
    for study in results.studies:
        shown = study_progress.shown(study, results.with_controls())
        if shown and shown["done"] < shown["runs"]:
            parts = ", ".join(f"{part['dataset']} on {part['backbone']} {part['done']}/{part['runs']}"
                              for part in shown["parts"])
            lines.append(f"The study {study.name} is not finished: {parts}. `{study.command}` does the rest.")
    for row in lost.head(5).to_dict("records"):
        run = " ".join(str(row[key]) for key in ("dataset", "split", "method") if pd.notna(row[key]) and row[key])
        cause = [*str(row["cause"] or "").splitlines(), "no cause recorded"][0]
        lines.append(one_line(f"{row['state']}: {run}{': ' if run else ''}{cause}"))
    if len(lost) > 5:
        lines.append(f"... and {len(lost) - 5} more runs without a result")
    return printable("\n".join([*blocks, *lines]))


def _on_no_board(results: Results, metric: str, beside: dict[str, str]) -> Iterator[str]:
    """A line for each ladder with methods that were trained on a part of it which no board of `summary` shows."""
    shown = {key for protocol in results.laddering(metric) for key in results.ags(metric, protocol).keys}
    for dataset in results.laddered:
        if beside.get(dataset) != "part":
            default = set(row_keys(on_default(results.cells(dataset, metric)))) if dataset in beside else set()
            board = rung_board(results, dataset, metric)
            left = [results.labels[key] for key in board.keys if key not in shown | default]
            if left:
                yield (f"On no board here, but on the page of {dataset}: {', '.join(left)}, trained neither on the "
                       "whole ladder nor on its default split.")

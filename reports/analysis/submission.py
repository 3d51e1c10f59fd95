"""Where a submission would stand on a board: its row, its rank with its range, what it beats and what beats it."""

from __future__ import annotations

import numpy as np

from reports import ReportError
from reports.analysis import significance
from reports.analysis.results import Results
from reports.analysis.statistics import ALPHA
from reports.board import Board
from reports.tables import formats
from reports.tables.table import level_of, rank_text
from reports.wording import decimal, metric_name

UNTESTED = "is not tested against, for want of seeds and of results of queries"


def standing(results: Results, method: str, metric: str = "recall@1") -> str:
    """Markdown on a submitted method, for each board that it stands on; a ReportError where it stands on none."""
    parts, compared = [], []
    for protocol in results.protocols:
        for dataset in ("", *results.unions):
            board = results.universal(dataset, protocol, metric) if dataset else results.ags(metric, protocol)
            by = ("harmonic", "") if dataset else ("mean", "")
            rows = board.rows
            here = np.flatnonzero((rows["method"] == method) & (rows["source"] == "submitted")).tolist()
            title = f"{metric_name(metric)} on {dataset}, harmonic mean" if dataset else f"AGS of {metric_name(metric)}"
            said = [_about(results, board, i, by, f"{title}, board of protocol {protocol}", metric, dataset)
                    for i in here]
            parts += said
            compared += said if rows["rank"].notna().sum() > 1 else []
    if not parts:
        raise ReportError(f"'{method}' stands on no board: there is no run on the same ladder to compare it with")
    return "\n\n".join(compared or parts)


def _about(results: Results, board: Board, i: int, by: tuple[str, str], title: str, metric: str, dataset: str) -> str:
    row, scores = board.rows.iloc[i], board.column(*by)
    own = scores.iloc[i]
    score = "incomplete: " + str(own["coverage"]) if np.isnan(own["score"]) else f"{100 * own['score']:.2f}"
    known = not np.isnan(own.get("low", np.nan))
    bounds = f"{100 * own['low']:.2f} to {100 * own['high']:.2f}" if known else "not known"
    network = board.rows["network"].eq(row["network"])
    ranks = int((network & board.rows["rank"].notna()).sum())
    name = _text(row["method"])
    lines = [f"### {name}: {_text(title)}", "",
             f"| rank among {ranks} on {_text(row['network'])} | method | level | score | 95 % interval |",
             "|---|---|---|--:|---|",
             f"| {rank_text(row.to_dict())} | {name} | {level_of(row.to_dict())} | {score} | {bounds} |"]
    if np.isnan(own["score"]) or ranks < 2:
        others = sorted(set(board.rows.loc[board.rows["rank"].notna() & ~network, "network"]))
        return "\n".join([*lines, "", "No other ranked row has this backbone: nothing to hold it against."
                          + (f" Ranked rows have {_text(', '.join(others))}."
                             if others else "") if ranks < 2 else "Without every split there is no rank."])
    p = _p_values(results, board, by, metric, dataset, network.to_numpy())
    labels, values = results.label(board.rows), scores["score"].to_numpy(float)
    groups: dict[str, list[str]] = {"beats": [], "does not differ from": [], "is beaten by": [], UNTESTED: []}
    for j in np.flatnonzero(network & board.rows["rank"].notna() & (np.arange(len(board)) != i)):
        key = (UNTESTED if np.isnan(p[i, j]) else "does not differ from" if p[i, j] >= ALPHA else
               "beats" if values[i] > values[j] else "is beaten by")
        groups[key].append(f"{_text(labels[j])} ({decimal(100 * (values[i] - values[j]), 2, signed=True)})")
    said = [f"- {key}: {', '.join(names) if names else 'none'}" for key, names in groups.items()
            if names or key != UNTESTED]
    return "\n".join([*lines, "", "Differences in points, paired tests, Holm, 5 %:", *said])


def _p_values(results: Results, board: Board, by: tuple[str, str], metric: str, dataset: str,
              network: np.ndarray) -> np.ndarray:
    """Corrected p-values of the differences between the ranked rows of one network; NaN elsewhere."""
    errors = results.errors(board, by, metric, dataset)
    rows = np.flatnonzero(network & board.rows["rank"].notna().to_numpy())
    p = np.full((len(board), len(board)), np.nan)
    p[np.ix_(rows, rows)] = significance.p_values(board.column(*by)["score"].to_numpy(float)[rows], errors.of(rows))
    return p


def _text(value: object) -> str:
    """A name as Markdown shows it."""
    return formats.markdown(str(value))

"""The ranking as the terminal shows it."""

from __future__ import annotations

import pandas as pd

from reports import aggregate, tables


def terminal(frame: pd.DataFrame, lost: pd.DataFrame, metric: str = "recall@1") -> str:
    """The AGS board of each protocol, the board of each union, and a line on runs without a result."""
    runs, notes = aggregate.select(frame)
    unions = aggregate.union_board(runs, metric)
    blocks = []
    for protocol, group in runs.groupby("protocol", sort=True):
        board = aggregate.ags_board(group, metric)
        if len(board):
            costs = aggregate.with_costs(board, group, metric)
            title = f"AGS of {metric} along the ladder, protocol {protocol} (percent, higher is better)"
            blocks.append(f"{title}\n\n{tables.to_text(tables.ags_table(costs, metric))}")
        for dataset, part in unions[unions["protocol"] == protocol].groupby("dataset", sort=True):
            title = f"{metric} on {dataset}, protocol {protocol}, ranked by the harmonic mean (percent)"
            blocks.append(f"{title}\n\n{tables.to_text(tables.without_parts(tables.union_table(part, metric)))}")
    if not blocks:
        blocks.append(f"No ladder and no union among {len(runs)} runs: nothing to rank, the pages show their scores.\n")
    lines = [*notes]
    for row in lost.head(5).to_dict("records"):
        run = " ".join(str(row[key]) for key in ("dataset", "split", "method") if row[key])
        lines.append(f"{row['state']}: {run}: {str(row['cause'] or 'not told').splitlines()[0]}")
    if len(lost) > 5:
        lines.append(f"... and {len(lost) - 5} more runs without a result")
    return "\n".join([*blocks, *lines])

"""Runs in a row: how much of the GPU's time their training took, from the published records."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from reports import records

ROOT = Path(__file__).parent.parent
ALONE, CEILING = 7160, 8290
"""Images a second of ResNet-50 on the GPU: the median epoch of a run alone, and the fastest way found."""


def test_the_table_of_runs_in_a_row() -> None:
    runs = records.collect(ROOT / "reports" / "data" / "records" / "photos")
    runs = runs[(runs["dataset"] == "cub") & runs["cost:train_seconds"].gt(0)]
    runs = runs.assign(end=pd.to_datetime(runs["date"]),
                       images=runs["cost:images_per_second"] * runs["cost:train_seconds"],
                       epochs=[settings["epochs"] for settings in runs["protocol_settings"]]).sort_values("end")
    runs["begin"] = runs["end"] - pd.to_timedelta(runs["cost:seconds"], unit="s")
    in_a_row = runs["end"].diff().gt(pd.Timedelta(minutes=3)).cumsum()
    lines = []
    for _, sweep in runs.groupby(in_a_row):
        took = (sweep["end"].max() - sweep["begin"].min()).total_seconds()
        bare, ceiling = (sweep["images"].sum() / rate for rate in (ALONE, CEILING))
        length = sweep["epochs"].iloc[0]
        lines.append(f"| {len(sweep)} runs of {length} epochs | {bare / len(sweep):.0f} s | {took:,.0f} s "
                     f"| {bare / took:.0%} ({ceiling / took:.0%}) |".replace("%", " %"))
    page = (ROOT / "benchmark" / "BENCHMARKS.md").read_text(encoding="utf-8")
    table = page.partition("| CUB, ResNet-50, three sharing the GPU |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(table) == 2
    assert {*table} <= {*lines}

"""The runs that count, and every board that is made of them: pages, terminal and exports all ask here."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from reports import ReportError, aggregate
from reports.aggregate import ROW
from reports.analysis import baselines, fewshot, published, significance
from reports.analysis.resampling import Resamples
from reports.records import HOW, metrics

METRICS = ("recall@1", "map@1000", "map@r")


class Results:
    """Collected runs, one for each cell; boards with ties, gains and costs, made once and kept."""

    def __init__(self, frame: pd.DataFrame, with_published: bool = True, rank_published: bool = False) -> None:
        if frame.empty:
            raise ReportError(f"there is no finished run; {HOW}")
        self.runs, self.notes = aggregate.select(frame)
        self.with_published = with_published
        self.rank_published = rank_published
        self.labels = aggregate.labels(self.runs)
        self.union = aggregate.is_union(self.runs)
        self.runs = self.runs.assign(label=self.label(self.runs))
        there = metrics(self.runs)
        self.metrics = [m for m in METRICS if m in there and self.runs[m].notna().any()] or there[:1]
        self.datasets = sorted(self.runs.loc[~self.union, "dataset"].unique())
        self.unions = sorted(self.runs.loc[self.union, "dataset"].unique())
        self.protocols = sorted(self.runs["protocol"].unique())
        self.ladders = dict(zip(self.runs["dataset"], self.runs["ladder"]))
        self._kept: dict[Any, Any] = {}

    def label(self, rows: pd.DataFrame) -> list[str]:
        """The name of each row of a board; of a published one its method."""
        return [self.labels.get(key, key[0]) for key in rows[ROW].itertuples(index=False, name=None)]

    def resamples(self, metric: str) -> Resamples:
        """The scores of all rows under resampled classes; empty for a metric whose outcomes are not kept."""
        return self._once(("resamples", metric), lambda: Resamples(self.runs, metric))

    @cached_property
    def protocol_settings(self) -> dict[str, list[dict[str, Any]]]:
        """For each protocol, whatever was changed in it, the settings that its rows were run with."""
        found: dict[str, list[dict[str, Any]]] = {}
        for protocol, settings in self.runs.drop_duplicates("label")[["protocol", "protocol_settings"]].itertuples(
                index=False, name=None):
            found.setdefault(protocol.split("[")[0], []).append(settings)
        return found

    @cached_property
    def fewshot(self) -> pd.DataFrame:
        """Few-shot results of the runs that have some, see `fewshot.collect`."""
        return fewshot.collect(self.runs)

    def ags(self, metric: str, protocol: str | None = None) -> pd.DataFrame:
        """The ooDML board of one protocol, or of all one after the other."""
        if protocol is None:
            boards = [self.ags(metric, each) for each in self.protocols]
            boards = [board for board in boards if len(board)]
            return pd.concat(boards, ignore_index=True) if boards else aggregate.ranked(pd.DataFrame(), "mean", ())
        return self._once(("ags", metric, protocol), lambda: self._ags(metric, protocol))

    def _ags(self, metric: str, protocol: str) -> pd.DataFrame:
        runs = self.runs[self.runs["protocol"] == protocol]
        board = aggregate.ags_board(runs, metric)
        if board.empty:
            return board
        board = baselines.with_costs(board, runs, metric)
        board = fewshot.with_gain(board, self.fewshot, metric)
        datasets = sorted(aggregate.on_ladder(runs)["dataset"].unique())
        said = published.ags_rows(datasets, metric) if self.with_published else pd.DataFrame()
        if len(said):
            whole = pd.concat([board.drop(columns="rank"), said], ignore_index=True)
            board = aggregate.ranked(whole, "mean", (), self.rank_published)
        resamples = self.resamples(metric)
        drawn = significance.board_draws(board, resamples, self.ladders, datasets)
        return significance.with_ties(board, "mean", [*datasets, "mean"], drawn, self._classes(metric, datasets))

    def universal(self, dataset: str, protocol: str, metric: str = "recall@1") -> pd.DataFrame:
        """The board of one union and protocol."""
        return self._once(("union", metric, dataset, protocol), lambda: self._union(dataset, protocol, metric))

    def _union(self, dataset: str, protocol: str, metric: str) -> pd.DataFrame:
        runs = self.runs[(self.runs["dataset"] == dataset) & (self.runs["protocol"] == protocol)]
        board = aggregate.union_board(runs, metric) if len(runs) else pd.DataFrame()
        if board.empty:
            return board
        parts = union_parts(board)
        said = published.union_rows(parts, metric) if self.with_published else pd.DataFrame()
        if len(said):
            whole = pd.concat([board.drop(columns="rank"), said.assign(dataset=dataset)], ignore_index=True)
            board = aggregate.ranked(whole, "harmonic", (), self.rank_published)
        rows = [tuple(row) for row in board[ROW].itertuples(index=False, name=None)]
        splits = aggregate.usual(runs)["split"].unique()
        drawn = {"unified": self.resamples(metric).scores(dataset, int(splits[0]), rows)} if len(splits) == 1 else {}
        return significance.with_ties(board, "harmonic", ["harmonic", "unified", "arithmetic", *parts], drawn,
                                  self._classes(metric, [dataset]))

    def cells(self, dataset: str, metric: str) -> pd.DataFrame:
        """The rungs of a dataset with the label of their row and errors of their scores."""
        return self._once(("cells", dataset, metric), lambda: self._cells(dataset, metric))

    def _cells(self, dataset: str, metric: str) -> pd.DataFrame:
        cells = aggregate.rung_scores(self.runs, dataset, metric)
        return cells.assign(label=self.label(cells), dataset=dataset)

    def rung_errors(self, dataset: str, split: int, metric: str) -> tuple[pd.DataFrame, significance.Errors]:
        """(the cells of one rung, their errors and those of all differences), in the order of the cells."""
        cells = self.cells(dataset, metric)
        here = cells[cells["split"] == split].reset_index(drop=True)
        rows = [tuple(row) for row in here[ROW].itertuples(index=False, name=None)]
        resamples = self.resamples(metric)
        found = significance.errors(resamples.scores(dataset, split, rows), here["std"].to_numpy(float),
                                here["n"].to_numpy(float), resamples.classes.get((dataset, split), 2))
        return here, found

    def _classes(self, metric: str, datasets: list[str]) -> int:
        """The fewest classes of any rung of these datasets: the degrees of freedom of what is drawn."""
        found = self.resamples(metric).classes
        return min((count for (dataset, _), count in found.items() if dataset in datasets), default=2)

    @cached_property
    def _laddered(self) -> list[str]:
        return sorted(aggregate.on_ladder(self.runs)["dataset"].unique())

    @cached_property
    def members(self) -> list[str]:
        """The datasets that are there as a part of a union alone, with one split."""
        parts = aggregate.parts_of_unions(self.runs)
        return [name for name in self.datasets if name in parts and name not in self._laddered]

    @cached_property
    def all_cells(self) -> pd.DataFrame:
        """The cells of all ladders for the first metric, in the order of datasets and distances.

        Datasets with one split alone count only where there is no ladder: few methods are run on all of both.
        """
        parts = [self.cells(dataset, self.metrics[0]) for dataset in self._laddered or self.datasets]
        parts = [part.sort_values(["frd", "split"], kind="stable") for part in parts if len(part)]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def _once(self, key: Any, make: Any) -> Any:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]


def union_parts(board: pd.DataFrame) -> list[str]:
    """The parts of a union that a `union_board` has scores of."""
    counted = {str(name).removesuffix(":n") for name in board if str(name).endswith(":n")
               and np.any(board[name].fillna(0) > 0)}
    return sorted(counted - {"harmonic", "unified", "arithmetic"})

"""The runs that count, and every board that is made of them: pages, terminal and exports all ask here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import cached_property
from typing import Any

import pandas as pd

from reports import ReportError, aggregate, pinned_ladders, selection
from reports.analysis import baselines, board_columns, fewshot, paper_tables, significance, thresholds
from reports.analysis.ranked_with import ranked_with
from reports.analysis.resampling import Resamples
from reports.analysis.seeds import SeedScores
from reports.analysis.study_progress import StudyProgress
from reports.board import Board
from reports.overrides import Overrides, overrides_text, with_overrides
from reports.pinned_ladders import PinnedLadder
from reports.records import HOW, metrics
from reports.selection import ROW
from reports.wording import near

METRICS = ("recall@1", "map@1000", "map@r")


class Results:
    """Collected runs, one for each cell; boards with ties, gains and costs, made once and kept.

    `derive` finds out in what a run differs from the file of its protocol as it is now, see
    `overrides.with_overrides`; `pinned` are the ladders that have names, `ladders` the names of those to show. Rows
    below `level` take no rank. `studies` may have boards of their own, see `ranked_with`.
    """

    def __init__(self, frame: pd.DataFrame, with_published: bool = True, rank_published: bool = False,
                 derive: Callable[..., Overrides | None] | None = None,
                 pinned: Iterable[PinnedLadder] = (), ladders: Sequence[str] = (), level: str = "",
                 studies: Iterable[StudyProgress] = ()) -> None:
        if frame.empty:
            raise ReportError(f"there is no finished run; {HOW}")
        pinned = list(pinned)
        frame = pinned_ladders.with_ladders(with_overrides(frame, derive), pinned)
        unknown = sorted(set(ladders) - set(frame["ladder_name"].dropna()))
        if unknown:
            known = sorted(set(frame["ladder_name"].dropna()))
            raise ReportError(f"no run is on the ladder '{unknown[0]}'{near(unknown[0], known)}; there are: "
                              f"{', '.join(known) or 'none is pinned'}")
        apart = selection.controls(frame)
        self.runs, older = selection.select(frame[~apart], ladders)
        control, aside = selection.select(frame[apart])
        self.fixed_test, unlike = selection.named_as(control, self.runs)
        self.set_aside = [*older, *aside, *unlike]
        self.with_published = with_published
        self.rank_published = rank_published
        self.labels = selection.labels(self.runs)
        self.union = selection.is_union(self.runs)
        self.studies = list(studies)
        self.runs = self.runs.assign(label=self.label(self.runs), ranked_with=ranked_with(self.runs, self.studies))
        there = metrics(self.runs)
        self.metrics = [m for m in METRICS if m in there and self.runs[m].notna().any()] or there[:1]
        self.datasets = sorted(self.runs.loc[~self.union, "dataset"].unique())
        self.unions = sorted(self.runs.loc[self.union, "dataset"].unique())
        self.level = level
        run = self.runs["source"] != "submitted"
        # what was submitted on a dataset that nothing was run on stands by itself, under its own protocol
        self._submitted_alone = ~run & ~self.runs["dataset"].isin(self.runs.loc[run, "dataset"])
        self.protocols = sorted(self.runs.loc[run | self._submitted_alone, "ranked_with"].unique())
        self.ladders = dict(zip(self.runs["dataset"], self.runs["ladder"]))
        self.pinned = pinned_ladders.of_datasets(self.runs, pinned)
        # a paper's number beside data or a ladder that are not the paper's would be taken for a comparison
        reasons = {name: paper_tables.differs(self.runs, name) for name in self.datasets}
        reasons |= {name: paper_tables.union_differs(self.runs[self.runs["dataset"] == name]) for name in self.unions}
        self.unlike_papers = {name: reason for name, reason in reasons.items() if reason}
        self.notes = list(self.set_aside)
        if with_published:
            self.notes += [f"{reason}: rows of papers are not on its boards, but among the published tables."
                           for reason in self.unlike_papers.values()]
        self._kept: dict[Any, Any] = {}

    def restricted(self, runs: pd.DataFrame) -> Results:
        """The same of some of the runs alone; rows keep their names."""
        part = copy(self)
        part.runs, part.protocols, part._kept = runs, sorted(runs["ranked_with"].unique()), {}
        for name in [name for name in vars(part) if isinstance(getattr(Results, name, None), cached_property)]:
            del vars(part)[name]
        return part

    def with_controls(self) -> pd.DataFrame:
        """The runs on ladders, and those of their controls."""
        return pd.concat([self.runs, self.fixed_test], ignore_index=True) if len(self.fixed_test) else self.runs

    def label(self, rows: pd.DataFrame) -> list[str]:
        """The name of each row of a board; of a published one its method."""
        return [self.labels.get(key, key[0]) for key in selection.row_keys(rows)]

    def resamples(self, metric: str) -> Resamples:
        """The scores of all rows under resampled classes; empty for a metric whose queries are not kept."""
        metrics = self.metrics if metric in self.metrics else [metric]
        return self.once(("resamples", *metrics), lambda: Resamples.of(self.runs, metrics))[metric]

    def seed_scores(self, metric: str) -> SeedScores:
        """The scores of all runs, seed by seed, from which the errors of AGS are made."""
        return self.once(("seeds", metric), lambda: SeedScores(self.runs, metric))

    @cached_property
    def protocol_settings(self) -> dict[str, list[dict[str, Any]]]:
        """For each protocol, whatever was changed in it, the settings that its rows were run with."""
        rows = self.runs.drop_duplicates("label")
        return {str(name): list(group) for name, group in rows.groupby("base_protocol")["protocol_settings"]}

    @cached_property
    def overrides(self) -> dict[tuple[str, ...], str]:
        """In what the runs of each row differ from the file of their protocol, in words."""
        return {tuple(map(str, key)): overrides_text(runs)
                for key, runs in self.runs.groupby(ROW)["overrides"]}

    @cached_property
    def fewshot(self) -> pd.DataFrame:
        """Few-shot results of the runs that have some, see `fewshot.collect`."""
        return fewshot.collect(self.runs)

    @cached_property
    def thresholds(self) -> pd.DataFrame:
        """False accepts and rejects along the ladders, of runs whose records keep them; see `thresholds.collect`."""
        return thresholds.collect(self.runs)

    def ranking(self, metric: str) -> pd.DataFrame:
        """The facts of the rows of all ooDML boards with their mean AGS, one protocol after the other."""
        rows = pd.concat([self.ags(metric, protocol).wide() for protocol in self.protocols], ignore_index=True)
        return rows[~(rows["source"].eq("submitted") & rows.duplicated(ROW))].reset_index(drop=True)

    def of_protocol(self, protocol: str) -> pd.DataFrame:
        """The runs of a board: those ranked with a protocol, and what was submitted on the same datasets.

        Networks that are not trained stand where methods are: with every protocol that trains on their dataset and
        evaluates alike, and with their own one only where there is none.
        """
        runs = self.runs
        own = runs["ranked_with"].eq(protocol) & (self._submitted_alone | (runs["source"] != "submitted"))
        sent = (runs["source"] == "submitted") & ~self._submitted_alone
        alike = runs["ranked_with"].map(selection.evaluated_as).eq(selection.evaluated_as(protocol))
        baseline = runs["baseline"].astype(bool) & (runs["source"] == "run")
        trained = alike & ~runs["baseline"].astype(bool) & (runs["source"] == "run")
        here = runs["dataset"].isin(runs.loc[own & trained, "dataset"])
        network = pd.MultiIndex.from_frame(runs[["dataset", "base_method", "backbone"]])
        lent = baseline & alike & ~own & here & ~network.isin(network[own & baseline])
        moved = baseline & own & ~here & runs["dataset"].isin(runs.loc[trained, "dataset"])
        return runs[(own & ~moved) | lent | (sent & runs["dataset"].isin(runs.loc[own, "dataset"]))]

    def laddering(self, metric: str) -> list[str]:
        """The protocols whose ooDML board ranks a row; where none does, those that have a board."""
        boards = self.boards(metric)
        return [protocol for protocol, board in boards.items() if board.rows["rank"].notna().any()] or list(boards)

    def boards(self, metric: str, union: str = "") -> dict[str, Board]:
        """The boards of the protocols that have rows: the ooDML boards, or those of a union."""
        made = {protocol: self.universal(union, protocol, metric) if union else self.ags(metric, protocol)
                for protocol in self.protocols}
        return {protocol: board for protocol, board in made.items() if len(board)}

    def ags(self, metric: str, protocol: str) -> Board:
        """The ooDML board of one protocol."""
        return self.once(("ags", metric, protocol), lambda: self._ags(metric, protocol))

    def _ags(self, metric: str, protocol: str) -> Board:
        runs = self.of_protocol(protocol)
        # a protocol may have run a frozen network alone along a ladder that methods are trained on a part of
        runs = runs[runs["dataset"].isin(self.laddered)]
        board = aggregate.ags_board(runs, metric)
        if not len(board):
            return board
        board = board_columns.with_ends(board_columns.with_costs(board, runs, metric), runs, metric)
        board = board_columns.with_late_gain(fewshot.with_gain(board, self.fewshot, metric), runs)
        board = board_columns.with_longer(board, self.runs)
        datasets = board.parts("ags")
        board = self._with_published(board, paper_tables.ags_rows(datasets, metric, self.unlike_papers), ("mean", ""))
        board = baselines.with_gains(board)
        return significance.with_ties(board, ("mean", ""), *self.draws(board, metric))

    def draws(self, board: Board, metric: str, union: str = "") -> tuple[Any, int | dict[tuple[str, str], int], Any]:
        """What errors of a board are made of: scores under resampled classes, their number, variances over seeds."""
        if union:
            runs = self.runs[self.runs["dataset"] == union]
            splits = selection.on_default(runs)["split"].unique()
            drawn = self.resamples(metric).union(union, int(splits[0]), union_parts(board), board.keys) if len(
                splits) == 1 else {}
            return drawn, self.classes(metric, [union]), None
        datasets = board.parts("ags")  # each has its own classes, their mean the fewest of any
        classes = {("ags", name): self.classes(metric, [name]) for name in datasets}
        return (significance.board_draws(board, self.resamples(metric), self.ladders),
                classes | {("mean", ""): self.classes(metric, datasets)},
                significance.board_seeds(board, self.seed_scores(metric), self.ladders))

    def errors(self, board: Board, by: tuple[str, str], metric: str, union: str = "") -> significance.Errors:
        """The errors of one column of an `ags` or, with its dataset, a `universal` board, and of all differences."""
        return significance.column_errors(board, by, *self.draws(board, metric, union))

    def _with_published(self, board: Board, printed: Board, by: tuple[str, str]) -> Board:
        if not self.with_published or not len(printed):
            return board.ranked(by, (), level=self.level) if self.level else board
        printed = printed.assign(level="reported")
        return board.joined(printed).ranked(by, (), self.rank_published, self.level)

    def universal(self, dataset: str, protocol: str, metric: str = "recall@1") -> Board:
        """The board of one union and protocol."""
        return self.once(("union", metric, dataset, protocol), lambda: self._union(dataset, protocol, metric))

    def _union(self, dataset: str, protocol: str, metric: str) -> Board:
        runs = self.of_protocol(protocol)
        runs = runs[runs["dataset"] == dataset]
        board = aggregate.union_board(runs, metric)
        if not len(board):
            return board
        board = board_columns.with_late_gain(board, runs)
        if dataset not in self.unlike_papers:
            printed = paper_tables.union_rows(union_parts(board), metric)
            board = self._with_published(board, printed.assign(dataset=dataset), ("harmonic", ""))
        elif self.level:
            board = board.ranked(("harmonic", ""), (), level=self.level)
        board = baselines.with_gains(board)
        return significance.with_ties(board, ("harmonic", ""), *self.draws(board, metric, dataset))

    def cells(self, dataset: str, metric: str) -> pd.DataFrame:
        """The rungs of a dataset with the label of their row and errors of their scores."""
        return self.once(("cells", dataset, metric), lambda: self._cells(self.runs, dataset, metric))

    def _cells(self, runs: pd.DataFrame, dataset: str, metric: str) -> pd.DataFrame:
        cells = aggregate.rung_scores(runs, dataset, metric)
        return cells.assign(label=self.label(cells), dataset=dataset)

    def fixed_test_cells(self, dataset: str, metric: str) -> pd.DataFrame:
        """The rungs of a dataset's control, whose test classes are those of its hardest split; see `splits`."""
        if not self.fixed_test["dataset"].eq(dataset).any() or metric not in self.fixed_test:
            return self.cells(dataset, metric).iloc[:0]
        return self._cells(self.fixed_test, dataset, metric)

    def rung_errors(self, dataset: str, split: int, metric: str) -> tuple[pd.DataFrame, significance.Errors]:
        """(the cells of one rung, their errors and those of all differences), in the order of the cells."""
        cells = self.cells(dataset, metric)
        here = cells[cells["split"] == split].reset_index(drop=True)
        rows = selection.row_keys(here)
        resamples = self.resamples(metric)
        errors = significance.errors(resamples.scores(dataset, split, rows), here["std"].to_numpy(float),
                                     here["n"].to_numpy(float), resamples.classes.get((dataset, split), 2),
                                     here["score"].to_numpy(float), here["backbone"].tolist(),
                                     random=significance.by_chance(here))
        return here, errors

    def classes(self, metric: str, datasets: list[str]) -> int:
        """The fewest classes of any rung of these datasets: the degrees of freedom of what is drawn."""
        counts = self.resamples(metric).classes
        return min((count for (dataset, _), count in counts.items() if dataset in datasets), default=2)

    @cached_property
    def laddered(self) -> list[str]:
        """The datasets that have a ladder."""
        return sorted(selection.on_ladder(self.runs)["dataset"].unique())

    @cached_property
    def without_ladder(self) -> list[str]:
        """The datasets of which no method has a whole ladder, often but the default split, and no union as a part."""
        return [name for name in self.datasets if name not in self.laddered and name not in self.members]

    @cached_property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """The members of each union; of a single dataset none."""
        return dict(self.runs.groupby("dataset")["members"].first())

    @cached_property
    def members(self) -> list[str]:
        """The datasets that are there as a part of a union alone, with one split."""
        parts, splits = set().union(*self.parts.values()), self.runs.groupby("dataset")["split"].nunique()
        return [name for name in self.datasets if name in parts and name not in self.laddered and splits[name] == 1]

    @cached_property
    def all_cells(self) -> pd.DataFrame:
        """The cells of all ladders for the first metric, in the order of datasets and distances.

        Datasets with one split alone count only where there is no ladder: few methods are run on all of both.
        """
        parts = [self.cells(dataset, self.metrics[0]) for dataset in self.laddered or self.datasets]
        parts = [part.sort_values(["frd", "split"], kind="stable") for part in parts if len(part)]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` gives, computed the first time it is asked for."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]


def union_parts(board: Board) -> list[str]:
    """The parts of a union that a `union_board` has scores of."""
    return sorted(set(board.scores.loc[board.scores["statistic"].eq("recall") & (board.scores["n"] > 0), "part"]))

"""What a board is: rows with their facts, scores in long form, and the rank of each row among those of its network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.extensions import take

from reports.selection import ROW, row_keys
from reports.storage.row import LEVELS

SCORE = ["row", "statistic", "part", "score", "std", "n", "coverage"]


@dataclass(frozen=True)
class Board:
    """Rows that are ranked against each other, and their scores in long form; a wide frame is made at the very end.

    `rows` holds the facts of each row by its number, in the order of the board: ROW, family, whether it is a baseline,
    its overrides, how it was trained (`group`), how many of its cells are covered, its network and its rank in it. A
    line of `scores` is one score: the number of its row, its statistic (ags, mean; recall, unified, harmonic,
    arithmetic), the dataset, part of a union or split it is of (`part`, empty for one over all of them), then score,
    std, n and coverage, from `baselines` gain, and from `significance` low, high and group. `overrides` says in what
    the runs differ from the file of their protocol.
    """

    rows: pd.DataFrame
    scores: pd.DataFrame
    overrides: str = ""

    @classmethod
    def of(cls, rows: Sequence[Mapping[Any, Any]], scores: list[tuple[Any, ...]], overrides: str = "") -> Board:
        """A board of rows and of (number of the row, statistic, part, score, std, n, coverage)."""
        empty = [*ROW, "dataset", "family", "baseline", "covered", "cells", "board"]
        facts = pd.DataFrame(rows, columns=None if rows else empty)
        return cls(facts.rename_axis("row"), pd.DataFrame(scores, columns=SCORE), overrides)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def keys(self) -> list[tuple[str, ...]]:
        """(method, protocol, backbone, source) of each row."""
        return row_keys(self.rows)

    @cached_property
    def _lines(self) -> dict[tuple[str, str], np.ndarray]:
        """For each (statistic, part) the line of `scores` that a row has it in, in the order of the rows; -1: in none.

        Plain numbers and lists: a board has few rows, and a step in pandas takes as long for them as for thousands.
        """
        places = {row: place for place, row in enumerate(self.rows.index)}
        lines: dict[tuple[str, str], np.ndarray] = {}
        for line, (row, *key) in enumerate(zip(*(self.scores[name] for name in ("row", "statistic", "part")))):
            lines.setdefault((key[0], key[1]), np.full(len(places), -1))[places[row]] = line
        return lines

    @cached_property
    def _said(self) -> dict[str, np.ndarray]:
        """What `scores` says by its name, without what it is of."""
        return {name: self.scores[name].to_numpy() for name in self.scores.columns[3:]}

    def _values(self, lines: np.ndarray) -> dict[str, Any]:
        """What some lines of `scores` say by its name, missing where a line is -1."""
        whole = bool((lines >= 0).all())
        return {name: values[lines] if whole else take(values, lines, allow_fill=True)
                for name, values in self._said.items()}

    def aligned(self, values: pd.Series) -> np.ndarray:
        """Values by the `keys` of rows, in the order of this board's; NaN where a row has none."""
        known: dict[Any, Any] = values.to_dict()
        return np.array([known.get(key, math.nan) for key in self.keys], dtype=float)

    def where(self, rows: pd.Series) -> Board:
        """The board of some of its rows alone."""
        kept = self.rows[rows]
        return replace(self, rows=kept, scores=self.scores[self.scores["row"].isin(kept.index)])

    def parts(self, statistic: str) -> list[str]:
        """The datasets, parts or splits that the board has this statistic of."""
        return sorted(part for name, part in self._lines if name == statistic)

    def column(self, statistic: str, part: str = "") -> pd.DataFrame:
        """One score of each row, in the order of the rows; missing where a row has none."""
        lines = self._lines.get((statistic, part), np.full(len(self), -1))
        return pd.DataFrame(self._values(lines), self.rows.index)

    def filled(self) -> pd.DataFrame:
        """The scores column by column, each with a line for every row, in the order of the board; missing as there."""
        named = zip(*((row, *key) for key in self._lines for row in self.rows.index))
        lines = np.concatenate([*self._lines.values(), np.zeros(0, int)])
        return pd.DataFrame(dict(zip(SCORE, map(list, named))) | self._values(lines), columns=self.scores.columns)

    def assign(self, **facts: Any) -> Board:
        """The board with further facts of its rows."""
        return replace(self, rows=self.rows.assign(**facts))

    def joined(self, other: Board) -> Board:
        """The rows of both, those of the other after these."""
        start = int(self.rows.index.max()) + 1
        rows = pd.concat([self.rows, other.rows.set_index(other.rows.index + start)])
        scores = pd.concat([self.scores, other.scores.assign(row=other.scores["row"] + start)], ignore_index=True)
        return replace(self, rows=rows, scores=scores)

    def ranked(self, by: tuple[str, str], within: Sequence[str], published: bool = False, level: str = "") -> Board:
        """The board with the facts `network`, `rank` by one (statistic, part) and `rank:of`, among how many rows.

        The best stand first within each network. Scores of different backbones or pretraining are not held against
        each other, nor are those of rows that differ in `within`. The network with the most ranks stands first;
        incomplete rows stand last in theirs. Baselines take no rank, and neither do rows from papers unless
        `published` asks for it, nor rows below `level`, one of LEVELS.
        """
        rows, score = self.rows.assign(network=networks(self.rows)), self.column(*by)["score"].astype(float)
        keys = [*within, "network"]
        counts = ~rows["baseline"].astype(bool) & score.notna() & (published | (rows["source"] != "published"))
        if level:
            enough = list(LEVELS)[list(LEVELS).index(level):]
            counts &= rows["level"].isin(enough)
        # plain lists: a board has a few hundred rows, for which grouping and sorting tables takes ten times as long
        groups, values = list(zip(*(rows[key] for key in keys))), score.tolist()
        ranked: dict[Any, list[float]] = {}
        for group, value, counted in zip(groups, values, counts):
            ranked.setdefault(group, []).extend([value] if counted else [])
        places = [1.0 + sum(other > value for other in ranked[group]) if counted else math.nan
                  for group, value, counted in zip(groups, values, counts)]
        shares = (-rows["covered"] / rows["cells"]).astype(float).fillna(math.inf).tolist()
        order = [(group[:-1], -len(ranked[group]), group[-1], math.isnan(value), 0.0 if math.isnan(value) else -value,
                  share, row) for group, value, share, row in zip(groups, values, shares, self.keys)]
        rows = rows.assign(rank=pd.Series(places, rows.index, dtype=float))
        rows["rank:of"] = [len(ranked[group]) for group in groups]
        return replace(self, rows=rows.iloc[sorted(range(len(order)), key=order.__getitem__)])

    def wide(self) -> pd.DataFrame:
        """One line a row: its facts, then `KEY`, `KEY:std`, `KEY:n` and so on of each score, see `key_of`."""
        columns: dict[str, np.ndarray] = {}
        for (statistic, part), lines in self._lines.items():
            key = key_of(statistic, part)
            columns |= {key if name == "score" else f"{key}:{name}": values
                        for name, values in self._values(lines).items()
                        if name != "coverage" or pd.notna(values).any()}
        return pd.concat([self.rows, pd.DataFrame(columns, index=self.rows.index)], axis=1).reset_index(drop=True)


def key_of(statistic: str, part: str = "") -> str:
    """The key of a score in a wide frame; no fact of a row has a key with the prefix of a statistic.

    >>> key_of("ags", "cub"), key_of("mean")
    ('ags:cub', 'mean')
    """
    return f"{statistic}:{part}" if part else statistic


def networks(rows: pd.DataFrame) -> pd.Series:
    """The network of each row, a backbone with its pretraining, among which alone rows are ranked.

    It is called by the backbone, and by the hash of its weights as well where trained rows start from several.
    """
    weights = rows["weights"].fillna("").tolist() if "weights" in rows else [""] * len(rows)
    # what was submitted does not tell its weights and is held against all of its backbone
    trained = ~rows["baseline"].astype(bool) & (rows["source"] == "run")
    known: dict[str, set[str]] = {}
    for backbone, weight, counts in zip(rows["backbone"], weights, trained):
        known.setdefault(backbone, set()).update([weight] if counts else [])
    names = [f"{backbone} · weights {weight[:8] or 'none'}" if len(known[backbone]) > 1 else backbone
             for backbone, weight in zip(rows["backbone"], weights)]
    return pd.Series(names, rows.index, dtype=object)


def in_unit(scores: np.ndarray | pd.Series) -> bool:
    """Whether all scores that are known are fractions.

    >>> in_unit(np.array([0.2, np.nan, 1.0])), in_unit(np.array([0.2, 7.0]))
    (True, False)
    """
    known = np.asarray(scores, float)
    known = known[np.isfinite(known)]
    return len(known) > 0 and bool(known.min() >= 0 and known.max() <= 1)


def fractions(scores: np.ndarray | pd.Series, bounds: np.ndarray | pd.Series | Sequence[float]) -> np.ndarray:
    """Bounds of intervals around scores; of fractions cut at 0 and 1, beyond which a symmetric interval may reach.

    >>> fractions(np.array([0.5, 0.9]), np.array([0.6, 1.1])).tolist(), fractions(np.array([7.0]), [8.0]).tolist()
    ([0.6, 1.0], [8.0])
    """
    return np.clip(bounds, 0, 1) if in_unit(scores) else np.asarray(bounds, float)

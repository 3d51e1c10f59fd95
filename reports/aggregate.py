"""From runs to boards: AGS over a ladder, harmonic mean over a union, coverage. Nothing is imputed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from reports import ReportError
from reports.board import Board
from reports.overrides import overrides_text
from reports.records import metrics
from reports.selection import BASELINES, ROW, evaluated_as, is_union, on_default, on_ladder, row_keys, typed
from reports.storage.row import selected_level
from reports.wording import near


def ags(fids: Sequence[float], scores: Sequence[float]) -> float:
    """Aggregated generalisation score: the area under the score over the normalised distance of a ladder.

    With d_i the Fréchet distances in rising order, x_i = (d_i - min d) / (max d - min d) and s_i the scores,
    AGS = sum_i (x_{i+1} - x_i) (s_i + s_{i+1}) / 2. Defined only if every rung has a score.

    >>> ags([10, 20, 50], [80, 70, 40])
    60.0
    """
    x, s = np.asarray(fids, float), np.asarray(scores, float)
    if x.shape != s.shape or x.ndim != 1 or len(x) < 2:
        raise ReportError(f"AGS needs one score for each of at least two rungs, not {len(s)} for {len(x)}")
    if not (np.isfinite(x).all() and np.isfinite(s).all()):
        raise ReportError("AGS is not defined where a rung has no distance or no score")
    if x.max() == x.min():
        raise ReportError("AGS is not defined on a ladder whose rungs are all at the same distance")
    order = np.argsort(x, kind="stable")
    x, s = x[order], s[order]
    return float(np.sum(np.diff(x) * (s[1:] + s[:-1])) / (2 * (x[-1] - x[0])))


def harmonic_mean(values: Iterable[float]) -> float:
    """n / sum_i (1 / v_i): near the smallest value, zero if any is zero.

    >>> harmonic_mean([0.5, 1.0])
    0.6666666666666666
    """
    numbers = [float(value) for value in values]
    if not numbers or not all(math.isfinite(value) for value in numbers):
        raise ReportError("the harmonic mean needs at least one value and none missing")
    if min(numbers) < 0:
        raise ReportError(f"the harmonic mean is not defined for the negative value {min(numbers)}")
    return 0.0 if min(numbers) == 0 else len(numbers) / math.fsum(1 / value for value in numbers)


def ags_per_seed(frame: pd.DataFrame, metric: str = "recall@1") -> pd.DataFrame:
    """AGS of each dataset, row and seed, missing unless the seed has a score on every rung; `covered` of `rungs`."""
    return _per_seed(on_ladder(having(frame, metric), [*_SEED, "split", metric, "ladder"]), metric)


_SEED = ("dataset", *ROW, "seed")


def _per_seed(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    by_seed: dict[tuple[Any, ...], dict[int, float]] = {}
    ladders = dict(zip(runs["dataset"], runs["ladder"]))
    for *head, split, score in zip(*(runs[name].tolist() for name in (*_SEED, "split", metric))):
        by_seed.setdefault(tuple(head), {})[split] = score
    rows = []
    for key, scores in sorted(by_seed.items()):
        ladder = ladders[key[0]]
        here = [scores.get(rung, math.nan) for rung, _ in ladder]
        covered = sum(math.isfinite(score) for score in here)
        value = ags([frd for _, frd in ladder], here) if covered == len(ladder) else math.nan
        rows.append((*key, value, covered, len(ladder)))
    return pd.DataFrame(rows, columns=[*_SEED, "ags", "covered", "rungs"])


def having(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The runs that have a metric; a ReportError where none does."""
    if metric not in frame:
        known = [column for column in metrics(frame) if frame[column].notna().any()]
        raise ReportError(f"no run has the metric '{metric}'{near(metric, known)}; there are: "
                          f"{', '.join(known) or 'none'}")
    return frame[frame[metric].notna()]


def spread(values: Iterable[float]) -> tuple[float, float, int]:
    """(mean, standard deviation with ddof=1, n) of what is there; a single value has no deviation.

    >>> spread([1.0, 3.0])
    (2.0, 1.4142135623730951, 2)
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return math.nan, math.nan, 0
    return float(np.mean(finite)), float(np.std(finite, ddof=1)) if len(finite) > 1 else math.nan, len(finite)


def facts_of_rows(frame: pd.DataFrame) -> dict[Any, dict[str, Any]]:
    """What is known of each row apart from its scores, by ROW."""
    facts: dict[Any, dict[str, Any]] = {}
    frame = typed(frame)
    told = [*ROW, "family", "base_method", "baseline", "overrides", "weights", "trains", "tags", "level", "ranked_with"]
    for key, group in frame[[name for name in told if name in frame]].groupby(ROW, sort=True):  # of hundreds of columns
        last = group.iloc[-1]
        facts[key] = {name: last[name] for name in (*ROW, "family", "base_method", "baseline")}
        # the backbone has a column of its own
        facts[key]["overrides"] = overrides_text({name: pair for name, pair in each.items() if name != "backbone"}
                                                 for each in group["overrides"] if each is not None)
        facts[key]["weights"] = "" if last["weights"] is None or pd.isna(last["weights"]) else str(last["weights"])
        facts[key]["group"] = regime(last)
        facts[key]["level"] = last["level"] if "level" in last else selected_level(last["source"])
        facts[key]["ranked_with"] = last["ranked_with"] if "ranked_with" in last else last["protocol"]
    return facts


def ags_board(frame: pd.DataFrame, metric: str = "recall@1") -> Board:
    """The ooDML board: a row for each (method, protocol, backbone, source), `ags` of each dataset and their `mean`.

    Scores are over the seeds with a complete ladder; there is a mean only where every dataset of the protocol is
    complete, whose deviation is over the seeds that all of them have. Ranked within a protocol and network; a baseline
    and a published row get no rank; an incomplete row neither and stands last.
    """
    facts = facts_of_rows(frame)
    rows, scores = [], []
    for number, (key, board, covered, cells, own) in enumerate(_ags_rows(frame, metric)):
        rows.append(facts[key] | {"covered": covered, "cells": cells, "board": board})
        scores += [(number, *score) for score in own]
    changed = on_ladder(frame, ["overrides"])["overrides"]
    return Board.of(rows, scores, overrides_text(changed, most=3)).ranked(("mean", ""), ("board",))


def mean_ags(frame: pd.DataFrame, metric: str, datasets: Collection[str]) -> dict[tuple[str, ...], float]:
    """The mean AGS over some datasets of each row of an `ags_board` that is of just these, without the board."""
    return {key: scores[-1][2] for key, *_, scores in _ags_rows(frame, metric)
            if {part for _, part, *_ in scores[:-1]} == set(datasets)}


def _ags_rows(frame: pd.DataFrame, metric: str) -> Iterator[tuple[Any, str, int, int, list[tuple[Any, ...]]]]:
    """(ROW, its board, cells covered, cells, its scores as in SCORE, the mean last) of each row of an `ags_board`."""
    told = [*_SEED, "split", metric, "ladder", *(name for name in _TYPES if name in frame)]
    runs = on_ladder(having(frame, metric), told)
    seeds, boards = _per_seed(runs, metric), boards_of(runs)
    needed: dict[str, set[str]] = {}
    for dataset, name in zip(runs["dataset"], _ranked_with(runs)):
        needed.setdefault(name, set()).add(dataset)
    rungs = dict(zip(seeds["dataset"], seeds["rungs"]))
    of_rows: dict[tuple[Any, ...], dict[tuple[str, int], tuple[float, int]]] = {}
    for dataset, *row, seed, value, covered, _ in seeds.itertuples(index=False, name=None):
        of_rows.setdefault(tuple(row), {})[dataset, seed] = value, covered
    for key, known in sorted(of_rows.items()):
        board = boards[key]
        datasets, own = sorted(needed[board]), sorted({seed for _, seed in known})
        cells = [[known.get((dataset, seed), (math.nan, 0)) for seed in own] for dataset in datasets]
        means, counts, scores, reached = [], [], [], 0
        for dataset, here in zip(datasets, cells):
            mean, *rest = spread(value for value, _ in here)
            most = max(covered for _, covered in here)
            means.append(mean)
            counts.append(rest[1])
            reached += most
            scores.append(("ags", dataset, mean, *rest, f"{most}/{rungs[dataset]}"))
        whole = sum(rungs[dataset] for dataset in datasets)
        _, std, shared = spread(float(np.mean([value for value, _ in seed])) for seed in zip(*cells))
        fewest = shared if shared > 1 else int(min(counts))  # without a deviation those of the dataset with the fewest
        scores.append(("mean", "", float(np.mean(means)), std, fewest, f"{reached}/{whole}"))
        yield key, board, reached, whole, scores


_TYPES = ("family", "base_method", "baseline", "ranked_with")


def boards_of(rows: pd.DataFrame) -> dict[tuple[str, ...], str]:
    """The board of each row, by ROW: it is called by a protocol, among whose rows a row is ranked.

    That is its own, or what `ranked_with` says. What was submitted stands with the protocol that has the most rows. A
    network that is not trained, and whose own protocol trains nothing here, stands with one that evaluates alike: of
    several with that of the most trained rows.
    """
    known: dict[tuple[str, ...], tuple[str, bool]] = {}
    for key, own, baseline in zip(row_keys(rows), _ranked_with(rows), typed(rows)["baseline"].tolist()):
        known.setdefault(key, (str(own), bool(baseline)))
    most = Counter(sorted(own for (*_, source), (own, _) in known.items() if source == "run"))
    trained = Counter(sorted(own for (*_, source), (own, baseline) in known.items()
                             if source == "run" and not baseline))
    boards = {}
    for row, (own, baseline) in known.items():
        alike = [name for name in trained if evaluated_as(name) == evaluated_as(own)]
        if row[3] == "submitted" and most:
            own = max(most, key=lambda name: most[name])
        elif baseline and own not in trained and alike:
            own = max(alike, key=lambda name: trained[name])
        boards[tuple(map(str, row))] = own
    return boards


def _ranked_with(rows: pd.DataFrame) -> list[str]:
    return (rows["ranked_with"] if "ranked_with" in rows else rows["protocol"]).tolist()


def union_board(frame: pd.DataFrame, metric: str = "recall@1") -> Board:
    """The universal board: for each row `recall` of each part, unified, harmonic and arithmetic mean, weakest part.

    The two means are of the parts' scores as shown, that is of their means over seeds, so that a reader can check
    them; their deviation is that of the means of each seed. Only the default split of a union counts. Ranked by
    the harmonic mean within a dataset, protocol and network.
    """
    runs = having(frame, metric)
    runs = on_default(runs[is_union(runs)])
    rows: list[dict[str, Any]] = []
    scores: list[tuple[Any, ...]] = []
    for dataset, of_dataset in runs.groupby("dataset", sort=True):
        # a part that no run has a score of is one all the same: without it there is no mean over the parts
        parts = dict.fromkeys(name for members in of_dataset["members"] for name in members)
        columns = [f"domain:{part}:{metric}" for part in parts]
        of_dataset = of_dataset.reindex(columns=list(dict.fromkeys([*of_dataset.columns, *columns])))
        facts, boards = facts_of_rows(of_dataset), boards_of(of_dataset)
        for key, group in of_dataset.groupby(ROW, sort=True):
            number, row = len(rows), {"dataset": dataset} | facts[key]
            row["board"] = boards[tuple(map(str, key))]
            row["parameters"] = float(group["trainable_parameters"].astype(float).max())
            values = group[columns]
            shown = {part: spread(values[column]) for part, column in zip(parts, columns)}
            scores += [(number, "recall", part, *score, None) for part, score in shown.items()]
            scores.append((number, "unified", "", *spread(group[metric]), None))
            covered = int(values.notna().any(axis=0).sum())
            complete, coverage = covered == len(columns), f"{covered}/{len(columns)}"
            means = {part: mean for part, (mean, _, _) in shown.items()}
            whole = values[values.notna().all(axis=1)].to_numpy()
            for name, mean in (("harmonic", harmonic_mean), ("arithmetic", lambda some: float(np.mean(some)))):
                scores.append((number, name, "", mean(list(means.values())) if complete else math.nan,
                               *spread(mean(seed) for seed in whole)[1:], coverage))
            row["weakest"] = min(means, key=lambda part: (means[part], part)) if complete else ""
            rows.append(row | {"covered": covered, "cells": len(columns)})
    board = Board.of(rows, scores, overrides_text(runs["overrides"], most=3))
    return board.ranked(("harmonic", ""), ("dataset", "board"))


def regime(row: pd.Series) -> str:
    """How the network of a row was trained: full, parameter-efficient, dataset-specific, or a baseline not at all."""
    if row["baseline"]:
        return f"{row['base_method']} baseline" if row["base_method"] in BASELINES else "baseline"
    return "submitted" if row["source"] == "submitted" else training_group(row["tags"])


def training_group(tags: Iterable[str] | None) -> str:
    """The group of UML's table 2 that a method belongs to, by its tags.

    >>> training_group(["modern"]), training_group(["parameter-efficient"]), training_group(["ensemble"])
    ('full', 'parameter-efficient', 'dataset-specific')
    """
    known = set(tags or ())
    return ("dataset-specific" if "ensemble" in known else
            "parameter-efficient" if "parameter-efficient" in known else "full")


def rung_scores(frame: pd.DataFrame, dataset: str, metric: str = "recall@1") -> pd.DataFrame:
    """The cells of a dataset: for each row and rung the mean over seeds, its deviation and n, in order of distance."""
    runs = having(frame[frame["dataset"] == dataset], metric)
    told = [*ROW, "split", metric, "frd", "kind", "weights", *_TYPES]
    runs = typed(runs[[name for name in told if name in runs]][~is_union(runs)])
    cells = runs.groupby([*ROW, "split"], sort=True)
    facts = cells[["frd", "kind", *(name for name in ("weights", *_TYPES) if name in runs)]].first()
    board = pd.concat([cells[metric].agg(score="mean", std="std", n="count"), facts], axis=1).reset_index()
    return board.sort_values([*ROW, "frd", "split"], kind="stable").reset_index(drop=True)


def without_gaps(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells of the methods that several splits have in common: of such tables without gaps the one of most cells.

    Splits that more methods have come first; baselines, and methods that lack one of the splits, are left out.

    >>> runs = [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("c", 2), ("a", 3)]
    >>> cells = pd.DataFrame(runs, columns=["label", "split"]).assign(baseline=False)
    >>> [*map(tuple, without_gaps(cells)[["label", "split"]].to_numpy())]
    [('a', 1), ('b', 1), ('a', 2), ('b', 2)]
    """
    trained = cells[~cells["baseline"].astype(bool)]
    having = trained.groupby("split")["label"].agg(set)
    order = sorted(having.index, key=lambda split: (-len(having[split]), split))
    blocks = [(order[:count], set.intersection(*having[order[:count]])) for count in range(2, len(order) + 1)]
    splits, labels = max(blocks, key=lambda block: (len(block[0]) * len(block[1]), len(block[0])), default=([], set()))
    return trained[trained["split"].isin(splits) & trained["label"].isin(labels)]

"""AGS of tuned methods, which boards do not have: there a row has the same settings on every rung."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from reports.aggregate import ags, spread
from reports.analysis import tuning
from reports.analysis.tuning import Search
from reports.tables.table import Column, Table
from reports.wording import counted, decimal, metric_name

_SETTINGS = {"each": "each rung's own", "default": "one choice for all rungs"}


def lines(searches: Iterable[Search], known: Iterable[Search]) -> list[str]:
    """One line for each method of `searches` whose whole ladder was tested, by these or by others of the `known`.

    Or one that says why it has no AGS, where that is because of unequal budgets alone.
    """
    searches, known = list(searches), list(known)
    own, said = {_together(search) for search in searches}, []
    for row in rows(search for search in known if _together(search) in own):
        gain = "" if math.isnan(row["ags_gain"]) else (
            f" (default {100 * row['default_ags']:.1f}); gain {decimal(100 * row['ags_gain'], 1, signed=True)}")
        said.append(f"{row['method']} on {row['dataset']}, {row['settings']}, {counted(row['rungs'], 'rung')}: "
                    f"AGS {100 * row['tuned_ags']:.1f}{gain}")
    for ladder in dict.fromkeys(_together(search, budget="") for search in searches):
        alike = [search for search in known if _together(search, budget="") == ladder]
        if _by_seed(alike, "tuned") and not rows(alike):
            budgets = ", ".join(map(str, sorted({search["budget"] for search in alike})))
            said.append(f"{alike[0]['method']} on {alike[0]['dataset']}: no AGS, since its rungs were tuned with "
                        f"unequal budgets ({budgets} trials); one --trials for all of them gives it one")
    return said


def rows(searches: Iterable[Search]) -> list[dict[str, Any]]:
    """A row for each method, dataset and kind of choice of which a seed has every rung, tested with one budget.

    `tuned_ags` and `default_ags` are means over the seeds that have every rung, `ags_gain` over those that have both.
    """
    ladders: dict[tuple[str, ...], list[Search]] = {}
    for search in searches:
        ladders.setdefault(_together(search), []).append(search)
    made = []
    for alike, network in zip(ladders.values(), tuning.networks([alike[0] for alike in ladders.values()])):
        first, tuned, default = alike[0], _by_seed(alike, "tuned"), _by_seed(alike, "default")
        if tuned:
            row = {name: first[name] for name in ("method", "dataset", "protocol", "sampler", "budget")}
            row |= {"backbone": network, "fixed": tuning.settings_text(first["fixed"]), "choose_on": first["choose_on"],
                    "settings": _SETTINGS[first["choose_on"]], "rungs": len(first["ladder"])}
            gains = [tuned[seed] - default[seed] for seed in tuned if seed in default]
            for name, values in (("tuned_ags", tuned.values()), ("default_ags", default.values()), ("ags_gain", gains)):
                row[name], row[f"{name}:std"], row[f"{name}:n"] = spread(values)
            made.append(row)
    return made


def _together(search: Search, **but: str) -> tuple[str, ...]:
    """What the searches have in common that choose for one ladder: all but the split, and the budget."""
    search = {**search, "split": "", **but}
    return (*tuning.key(search), str(search["budget"]), json.dumps(_ladder(search)))


def _ladder(search: Search) -> list[tuple[int, float]]:
    """The rungs with their distances; none in files of before, nor where all are at one, so that there is no AGS."""
    rungs = [(int(rung), float(frd)) for rung, frd in search.get("ladder", [])]
    return rungs if len({frd for _, frd in rungs}) > 1 else []


def _by_seed(searches: Sequence[Search], which: str) -> dict[int, float]:
    """AGS of each seed that has a score on every rung, `tuned` or `default`: nothing is imputed."""
    ladder, seeds = _ladder(searches[0]), dict[int, dict[int, float]]()
    for score in (score for search in searches for score in search["test"] if score[which] is not None):
        seeds.setdefault(score["seed"], {})[score["split"]] = score[which]
    return {seed: ags([frd for _, frd in ladder], [scores[rung] for rung, _ in ladder])
            for seed, scores in sorted(seeds.items()) if ladder and all(rung in scores for rung, _ in ladder)}


def table(searches: Sequence[Search]) -> Table | None:
    """One row a method: its AGS tuned, by default, and the gain; None where no method has a whole ladder."""
    made = rows(searches)
    if not made:
        return None
    frame, metric = pd.DataFrame(made), metric_name(searches[0]["metric"])
    columns = (Column("method", "Method"),
               *tuning.varying(frame, "dataset", "protocol", "backbone", "sampler", "fixed"),
               Column("settings", "Settings", "text", "Chosen on each rung's own held-out classes for itself, or on "
                                                      "those of one split for all rungs"),
               tuning.BUDGET,
               Column("rungs", "Rungs", "number", "Rungs of the ladder, each of them tested", 0),
               Column("tuned_ags", "AGS tuned", "score", f"AGS of the test {metric} of the choices, mean over the "
                                                         "seeds that have every rung"),
               Column("default_ags", "AGS default", "score", "The same of the default configuration, where it was run "
                                                             "on every rung (`--compare`)"),
               Column("ags_gain", "AGS gain", "gain", "Tuned less default, mean over the seeds that have both"))
    found = {(row["method"], row["dataset"]) for row in made}
    lacking = dict.fromkeys(f"{search['method']} on {search['dataset']}" for search in searches
                            if _ladder(search) and (search["method"], search["dataset"]) not in found)
    notes = [tuning.uneven(frame), tuning.shared(searches) if "default" in set(frame["choose_on"]) else "",
             f"No seed has every rung, tested with one budget, of {', '.join(lacking)}." if lacking else ""]
    return Table("tuning-ags", "AGS of each method, tuned and by default", columns, frame,
                 " ".join(note for note in notes if note), marked=False)


def joined(searches: Table, over: Table | None) -> Table:
    """Both tables as one for other programs: a row a search, then those of AGS with further columns."""
    if over is None:
        return searches
    known = {column.key for column in searches.columns}
    further = [column for column in over.columns if column.key not in known]
    both = pd.DataFrame([*searches.rows, *over.rows], dtype=object)  # as they are, a split no 1.0
    return Table(searches.name, searches.caption, (*searches.columns, *further), both,
                 " ".join(dict.fromkeys(note for note in (searches.note, over.note) if note)), marked=False)

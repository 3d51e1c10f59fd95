"""One paper in its own order: what each table prints, what was measured here, and the command that fills the rest."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from reports import aggregate
from reports.analysis import fewshot, paper_catalogue, paper_numbers, paper_tables
from reports.analysis.paper_catalogue import Item
from reports.analysis.paper_numbers import PARTS, Cell, Sought
from reports.analysis.statistics import kendall
from reports.overrides import Overrides, overrides_text
from reports.selection import ROW

DECISIVE = ("backbone", "dim", "batches", "train_shots")
"""Keys of a protocol that make another experiment of a run, as every setting of a method does; other overrides (fewer
epochs, say) are named beside the number."""
STAND_INS = {"resnet50": ("resnet50_v1",)}
"""The same network with other ImageNet weights: counts where the paper's own was not run, named beside the number."""
UNSCALED = ("distance", "structure")
"""Places whose numbers are printed as they are; all others are shares, printed in percent."""


class Measured(NamedTuple):
    """Our number in the unit of the paper: mean and deviation over seeds, and in what its runs differ from the file."""

    mean: float
    std: float
    n: int
    overrides: str = ""


NOTHING = Measured(math.nan, math.nan, 0)


class Shown(NamedTuple):
    """A printed number beside ours; `apart` says why none of ours could be held against it, if so."""

    cell: Cell
    ours: Measured
    apart: str = ""

    @property
    def difference(self) -> float:
        """Ours less the printed number."""
        return self.ours.mean - float(self.cell.printed)

    @property
    def missing(self) -> bool:
        """Whether a run of this suite could fill it and none has."""
        return self.cell.sought is not None and not self.ours.n and not self.apart


@dataclass(frozen=True)
class Filled:
    """An item of a paper with its numbers; `commands` fill what is missing."""

    item: Item
    shown: Sequence[Shown]
    commands: Sequence[str]

    @property
    def name(self) -> str:
        """The item as part of file names."""
        return f"paper-{self.item.paper}-{self.item.name}".lower().replace(" ", "-")

    @property
    def digits(self) -> int:
        """As many decimals as the printed numbers have at most."""
        return max((len(one.cell.printed.partition(".")[2]) for one in self.shown), default=1)

    @property
    def status(self) -> str:
        """How far it is, in a few words."""
        sought = [one for one in self.shown if one.cell.sought is not None]
        measured = sum(one.ours.n > 0 for one in sought)
        cited = len(self.shown) - len(sought)
        words = [f"{measured} of {len(sought)} numbers measured"] if self.shown else []
        words += [f"{cited} cited from other papers"] if cited else []
        apart = Counter(one.apart for one in sought if one.apart)
        return ", ".join([*words, *(f"{count} not compared, because {why}" for why, count in apart.items())])

    @property
    def missing(self) -> bool:
        """Whether its commands are still to be run; unknown, hence true, where it has no numbers."""
        return bool(self.commands) and (not self.shown or any(one.missing for one in self.shown))

    @property
    def notes(self) -> list[str]:
        """Rows whose runs differ from the file of their protocol, and in what."""
        rows: dict[str, dict[str, None]] = {}
        for one in self.shown:
            if one.ours.overrides:
                rows.setdefault(one.ours.overrides, {})[" ".join(filter(None, one.cell.row))] = None
        return [f"{', '.join(names)}: {text}" for text, names in rows.items()]

    def grid(self) -> tuple[list[str], list[tuple[str, list[Shown | None]]]]:
        """(heads of the columns, [(name of a row, its numbers)]) as in the paper, without what is the same in all."""
        columns = _named([one.cell.column for one in self.shown])
        rows = _named([one.cell.row for one in self.shown])
        at = {(rows[one.cell.row], columns[one.cell.column]): one for one in self.shown}
        heads = list(dict.fromkeys(columns.values()))
        return heads, [(row, [at.get((row, head)) for head in heads]) for row in dict.fromkeys(rows.values())]

    def agreement(self) -> list[tuple[float, float, int] | None]:
        """For each column (Kendall's tau of our order of the rows with the printed one, mean difference, rows).

        None where fewer than four rows were measured, of which no order can be told.
        """
        _, rows = self.grid()
        columns = ([one for one in column if one is not None and one.ours.n]
                   for column in zip(*(shown for _, shown in rows)))
        return [(kendall([float(one.cell.printed) for one in column], [one.ours.mean for one in column])[0],
                 float(np.mean([one.difference for one in column])), len(column)) if len(column) > 3 else None
                for column in columns]

    def columns(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """The numbers in long form, for its CSV; as printed, that is scores in percent."""
        rows = [(" ".join(filter(None, one.cell.row)), " ".join(filter(None, one.cell.column)),
                 float(one.cell.printed), float(one.cell.std or "nan"), one.ours.mean, one.ours.std, one.ours.n,
                 one.difference, one.ours.overrides, " && ".join(self.commands) if one.missing else "", one.apart)
                for one in self.shown]
        keys = ("row", "column", "printed", "printed_std", "ours", "ours_std", "seeds", "difference", "overrides",
                "missing", "not_compared")
        return zip(keys, zip(*rows))


def _named(keys: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """One name for each key: its parts without those that all keys have in common.

    >>> _named([("cub", "recall@1"), ("cars", "recall@1")])
    {('cub', 'recall@1'): 'cub', ('cars', 'recall@1'): 'cars'}
    """
    unique = list(dict.fromkeys(keys))
    differing = [place for place in range(len(unique[0])) if len({key[place] for key in unique}) > 1] or [-1]
    return {key: " ".join(filter(None, (key[place] for place in differing))) for key in unique}


class Runs:
    """The runs of a paper's protocol, as they are looked up for its tables."""

    def __init__(self, runs: pd.DataFrame, paper: str) -> None:
        self.backbone = paper_catalogue.load(paper).backbone
        self.ladders = runs[["dataset", "split", "kind", "frd"]].drop_duplicates(["dataset", "split"])
        known = dict(zip(runs["dataset"], runs["ladder"]))
        self.alike = {name for name, ladder in known.items() if paper_tables.has_papers_ladder(ladder, name)}
        self.unlike = {name: paper_tables.ladder_differs(ladder, name) for name, ladder in known.items()}
        own = runs[runs["source"].eq("run") & runs["base_protocol"].eq(paper)]
        if paper_catalogue.load(paper).epoch == "best-test":  # like with like
            best = {name.partition(":")[2]: own[name] for name in map(str, own) if name.startswith("best-test:")}
            own = own.assign(**{name: values.fillna(own[name]) for name, values in best.items() if name in own})
        names = ["dataset", "base_method", "base_backbone"]
        self.groups: dict[Any, list[pd.DataFrame]] = {
            key: [variant for _, variant in group.groupby(ROW, sort=True)] for key, group in own.groupby(names)}

    def measured(self, sought: Sought) -> Measured:
        """What was measured of what a paper prints; n = 0 where nothing was."""
        if self._taken_over(sought):
            return NOTHING
        if sought.place == "distance":
            here = self.ladders[self.ladders["dataset"].eq(sought.dataset)]
            here = self._on_rung(here, sought) if sought.split else here[here["kind"].eq(sought.method)]
            return Measured(*aggregate.spread(here["frd"].astype(float)))
        if sought.place == "members":
            parts = [self.measured(sought._replace(place="default", dataset=part)) for part in PARTS[sought.dataset]]
            if not all(part.n for part in parts):
                return NOTHING
            texts = "; ".join(dict.fromkeys(part.overrides for part in parts if part.overrides))
            return Measured(aggregate.harmonic_mean(part.mean for part in parts), math.nan,
                            min(part.n for part in parts), texts)
        best = min(self._choices(sought), key=lambda choice: choice[:-1], default=(NOTHING,))[-1]
        scale = 1 if sought.place in UNSCALED else 100
        return best._replace(mean=scale * best.mean, std=scale * best.std)

    def apart(self, sought: Sought) -> str:
        """Why nothing here can be held against a number: its ladder is another here, or we have the number from it."""
        if self._taken_over(sought):
            return f"the ladder of {sought.dataset} is the released one, with the paper's own distances"
        along = sought.place == "ags" or (sought.split and not _on_default(sought))
        return self.unlike.get(sought.dataset, "") if along else ""

    def _taken_over(self, sought: Sought) -> bool:
        """Whether it is a distance on the released ladder: records then carry the number of the paper itself."""
        return sought.place == "distance" and sought.method != "iid" and sought.dataset in self.alike

    def _on_rung(self, runs: pd.DataFrame, sought: Sought) -> pd.DataFrame:
        """The runs on a split of the paper's ladder; of another ladder its default split alone is the same."""
        if sought.dataset in self.alike:
            return runs[runs["split"].eq(sought.split)]
        return runs[runs["kind"].eq("default") & _on_default(sought)]

    def _choices(self, sought: Sought) -> Iterator[tuple[Any, ...]]:
        """Every variant that was run of what is sought, last; before it what makes another one the better choice."""
        wanted = sought.backbone or self.backbone
        for backbone in (wanted, *STAND_INS.get(wanted, ())):
            for variant in self.groups.get((sought.dataset, sought.method, backbone), ()):
                mean, std, n = aggregate.spread(self._scores(variant, sought) if _fits(variant, sought) else ())
                if n:
                    own = backbone == wanted
                    text = overrides_text(_others(each, sought, own) for each in variant["overrides"])
                    epochs = (variant.iloc[0]["protocol_settings"] or {}).get("epochs", 0)
                    yield bool(text), not own, -n, -epochs, Measured(mean, std, n, text)

    def _scores(self, runs: pd.DataFrame, sought: Sought) -> Iterable[float]:
        """The number of each seed, as a fraction."""
        place, metric = sought.place, sought.metric
        if place == "ags":
            known = metric in runs and sought.dataset in self.alike
            return aggregate.ags_per_seed(runs, metric)["ags"] if known else []
        if place == "fewshot":
            shots, use = sought.part.split()
            adapted = fewshot.collect(self._on_rung(runs, sought))
            wanted = adapted[adapted["shots"].eq(int(shots)) & adapted["metric"].eq(metric)]
            return fewshot.most_thorough(wanted, "split", "seed")[use]
        if place == "harmonic":
            columns = [f"domain:{part}:{metric}" for part in PARTS[sought.dataset]]
            parts = runs.reindex(columns=columns).astype(float).dropna()
            return [aggregate.harmonic_mean(values) for values in parts.to_numpy()]
        column = {"part": f"domain:{sought.part}:{metric}", "structure": f"structure:test:{metric}"}.get(place, metric)
        if place == "rung":
            runs = self._on_rung(runs, sought)
        elif place in ("default", "structure"):
            runs = runs[runs["kind"].eq("default")]
        return runs[column].astype(float) if column in runs else []


def _on_default(sought: Sought) -> bool:
    """Whether the split of a ladder that is sought is the default one, which has another number on other ladders."""
    return sought.split == paper_tables.default_rungs().get(sought.dataset)


def _fits(variant: pd.DataFrame, sought: Sought) -> bool:
    """Whether the runs of a variant, which have their settings in common, are the experiment that is sought."""
    run = variant.iloc[0]
    values = {**(run["protocol_settings"] or {}),
              **{f"{run['base_method']}.{key}": value for key, value in (run["settings"] or {}).items()}}
    wanted = dict(sought.settings)
    if any(json.dumps(values.get(key)) != json.dumps(value) for key, value in wanted.items()):
        return False
    changed = {key for key in run["overrides"] or {} if key in DECISIVE or "." in key} - {"backbone", *wanted}
    return not changed


def _others(overrides: Overrides | None, sought: Sought, own: bool) -> Overrides | None:
    """The overrides of a run without those that the table itself asks for; `own`: its network is the table's."""
    asked = {*(["backbone"] if own else []), *dict(sought.settings)}
    return overrides and {key: value for key, value in overrides.items() if key not in asked}


def page(paper: str, runs: pd.DataFrame, fills: Mapping[str, Sequence[str]]) -> list[Filled]:
    """The items of a paper with their numbers.

    Args:
        paper: One of `paper_catalogue.PAPERS`.
        runs: The runs that count, as `Results` has them.
        fills: For the keys of items the names of the studies that fill them.
    """
    lookup = Runs(runs, paper)
    known: dict[Sought, Measured] = {}
    filled = []
    for item in paper_catalogue.load(paper).items:
        shown = []
        for cell in paper_numbers.cells(item):
            if cell.sought is not None and cell.sought not in known:
                known[cell.sought] = lookup.measured(cell.sought)
            shown.append(Shown(cell, known[cell.sought], lookup.apart(cell.sought)) if cell.sought else
                         Shown(cell, NOTHING))
        commands = [f"oodml run --study {name}" for name in fills.get(item.key, ())]
        filled.append(Filled(item, shown, commands or [item.command] * bool(item.command)))
    return filled


def summary(items: Sequence[Filled]) -> list[str]:
    """A line for each item: how far it is, and what fills the rest."""
    width = max(len(one.item.name) for one in items)
    return [f"{one.item.name:{width}}  {one.item.title}: " + "; ".join(filter(None, [
        one.status, f"{'missing' if one.shown else 'by'}: {' && '.join(one.commands)}" if one.missing else "",
        "" if one.shown else one.item.note])) for one in items]

"""Tuning: what `tune/NAME.json` says of the configurations that were tried, the choice, and how much it mattered."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import Field, TypeAdapter
from typing_extensions import NotRequired, TypedDict

from reports import ReportError
from reports.aggregate import spread
from reports.row_settings import short_weights
from reports.safe_text import one_line
from reports.storage import paths
from reports.storage.json_text import from_json
from reports.tables.table import Column, Table
from reports.wording import decimal, metric_name

FOLDER = "tune"
SCHEMA = 1
_KEY = ("dataset", "method", "protocol", "backbone", "weights", "choose_on", "split", "sampler", "seed")
UNSAID = ""
"""The weights of a search whose file is of before and does not say them."""
Search = dict[str, Any]
"""The search of one method on one dataset, as its file has it."""


def key(search: Search) -> tuple[str, ...]:
    """What tells searches apart: where, for which rungs, by which sampler; those of equal key replace each other."""
    return (*(str(search[name]) for name in _KEY), json.dumps(search["fixed"], sort_keys=True))


_SCORE = Annotated[float, Field(ge=0, le=1)] | None


class _Trial(TypedDict):
    number: int
    set: dict[str, Any]
    state: str
    score: _SCORE
    run: str


class _Tested(TypedDict):
    split: int
    seed: int
    tuned: _SCORE
    default: _SCORE


class _Search(TypedDict):
    dataset: str
    method: str
    protocol: str
    backbone: str
    sampler: str
    metric: str
    split: int
    weights: NotRequired[str]
    choose_on: NotRequired[Literal["each", "default"]]
    ladder: NotRequired[list[tuple[int, Annotated[float, Field(allow_inf_nan=False)]]]]
    seed: int
    budget: int
    fixed: dict[str, Any]
    tested_held_out: dict[int, int]
    trials: list[_Trial]
    choice: int | None
    chosen: dict[str, Any] | None
    default_score: _SCORE
    score: _SCORE
    test: list[_Tested]
    test_gain: float | None


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(list[_Search])


def load(path: Path) -> list[Search]:
    """The searches in one file of `oodml tune`."""
    try:
        content = from_json(paths.own_content(path.parent.parent, path))
        if content["schema"] != SCHEMA:
            raise ReportError(f"{path} is of schema {content['schema']} and this version reads {SCHEMA}; run "
                              "`oodml tune` again")
        _adapter().validate_python(content["searches"])
        return [{"choose_on": _chooses_on(search), "weights": UNSAID, **search} for search in content["searches"]]
    except ReportError:
        raise
    except (OSError, ValueError, LookupError, TypeError) as error:
        if paths.out_of_reach(error):
            raise ReportError(f"{path} cannot be read ({one_line(str(error), 200)})") from None
        raise ReportError(f"{path} is damaged ({one_line(str(error), 200)}); delete it and run `oodml tune` again: "
                          "finished trials are kept") from None


def _chooses_on(search: Search) -> str:
    """What `--choose-on` was, which files of before do not say: of each rung, for itself, where no other was tested."""
    return "each" if set(_tested(search)) <= {search["split"]} else "default"


def _tested(search: Search) -> list[int]:
    """The splits that the choice is for."""
    return sorted(map(int, search["tested_held_out"]))


def networks(searches: Sequence[Search]) -> list[str]:
    """The backbone of each search, with the first digits of its weights' hash where others of its name had others.

    >>> one = {"backbone": "conv4:mine", "weights": "1a2b3c4d" * 8}
    >>> networks([one]), networks([one, {**one, "weights": "9f8e7d6c" * 8}])
    (['conv4:mine'], ['conv4:mine (1a2b3c4d)', 'conv4:mine (9f8e7d6c)'])
    """
    known: dict[str, set[str]] = {}
    for search in searches:
        known.setdefault(search["backbone"], set()).add(search["weights"])
    return [search["backbone"] + (f" ({short_weights(search['weights']) or 'unknown weights'})"
                                  if len(known[search["backbone"]]) > 1 else "") for search in searches]


def _for_splits(search: Search) -> str:
    return ", ".join(map(str, _tested(search)))


def read(folders: Iterable[Path | str], damaged: list[ReportError] | None = None) -> list[Search]:
    """The searches of working folders, in a stated order; the same one is taken once.

    A damaged file is a ReportError, which goes to the list `damaged` where one is given.
    """
    searches: dict[tuple[str, ...], Search] = {}
    for folder in folders:
        for path in sorted(Path(folder).glob(f"{FOLDER}/*.json")):
            try:
                for search in load(path):
                    searches.setdefault(key(search), search)
            except ReportError as error:
                if damaged is None:
                    raise
                damaged.append(error)
    return [searches[one] for one in sorted(searches)]


def gain_on_test(scores: Sequence[dict[str, Any]]) -> tuple[float | None, float | None, int]:
    """(mean, deviation over seeds, seeds) of tuned less default, each seed's mean over the rungs that have both.

    >>> gain_on_test([{"seed": 0, "tuned": 0.5, "default": 0.25}, {"seed": 1, "tuned": 0.5, "default": None}])
    (0.25, None, 1)
    """
    seeds: dict[int, list[float]] = {}
    for score in scores:
        if score["tuned"] is not None and score["default"] is not None:
            seeds.setdefault(score["seed"], []).append(score["tuned"] - score["default"])
    mean, deviation, count = spread(sum(gains) / len(gains) for gains in seeds.values())
    return None if math.isnan(mean) else mean, None if math.isnan(deviation) else deviation, count


def settings_text(configuration: dict[str, Any] | None) -> str:
    """A configuration in words.

    >>> settings_text({"lr": 0.001, "margin.beta": 0.9}), settings_text({})
    ('lr=0.001, margin.beta=0.9', 'default')
    """
    if configuration is None:
        return ""
    return ", ".join(f"{name}={value}" for name, value in configuration.items()) or "default"


def lines(searches: Iterable[Search]) -> list[str]:
    """One line for each search: the choice, its gain on validation and, where both were tested, on test."""
    said = []
    for search in searches:
        where = f"{search['method']} on {search['dataset']}, split {search['split']}"
        if set(_tested(search)) - {search["split"]}:
            where += f" for splits {_for_splits(search)}"
        if search["choice"] is None:
            said.append(f"{where}: no choice yet")
            continue
        gain = "" if search["test_gain"] is None else (
            f"; test {decimal(100 * search['test_gain'], 1, signed=True)} against the default")
        before = "diverged" if search["default_score"] is None else f"{100 * search['default_score']:.1f}"
        said.append(f"{where}: {settings_text(search['chosen'])} (trial {search['choice']} of {search['budget']}), "
                    f"validation {100 * search['score']:.1f} (default {before}){gain}")
    return said


BUDGET = Column("budget", "Budget", "number", "Configurations tried, the default among them", 0)
_HEADS = {"dataset": "Dataset", "protocol": "Protocol", "backbone": "Backbone", "split": "Chosen on split",
          "for_splits": "For splits", "sampler": "Sampler", "fixed": "Fixed"}


def varying(frame: pd.DataFrame, *names: str) -> list[Column]:
    """The columns of these names whose values differ, and that of the dataset."""
    return [Column(name, _HEADS[name]) for name in names if name == "dataset" or frame[name].nunique() > 1]


def board(searches: Sequence[Search]) -> Table:
    """One row a search: budget, choice, gain on validation and on test, and how much the setting matters."""
    rows = []
    for search, network in zip(searches, networks(searches)):
        scores = [trial["score"] for trial in search["trials"] if trial["score"] is not None]
        tested = [score["tuned"] for score in search["test"] if score["tuned"] is not None]
        gain, deviation, seeds = gain_on_test(search["test"])
        default, chosen = search["default_score"], search["score"]
        rows.append({
            "method": search["method"], "dataset": search["dataset"], "protocol": search["protocol"],
            "backbone": network, "split": search["split"], "for_splits": _for_splits(search),
            "choose_on": search["choose_on"], "sampler": search["sampler"], "fixed": settings_text(search["fixed"]),
            "budget": search["budget"], "diverged": sum(trial["state"] == "diverged" for trial in search["trials"]),
            "choice": settings_text(search["chosen"]), "default": default, "chosen": chosen,
            "gain": None if chosen is None or default is None else chosen - default,
            "test": spread(tested)[0], "test_gain": gain, "test_gain:std": deviation, "test_gain:n": seeds,
            "spread": spread(scores)[1], "worst": min(scores, default=None)})
    frame = pd.DataFrame(rows)
    metric = searches[0]["metric"]
    columns = (Column("method", "Method"),
               *varying(frame, "dataset", "protocol", "backbone", "split",
                        *(["for_splits"] if _of_several(searches) else []), "sampler", "fixed"),
               BUDGET,
               Column("diverged", "Diverged", "number", "Trials whose loss diverged; they count as the worst", 0),
               Column("choice", "Choice"),
               Column("default", "Default", "score", f"Validation {metric_name(metric)} of the default configuration"),
               Column("chosen", "Chosen", "score", f"Validation {metric_name(metric)} of the choice; the best of "
                                                   "several is flattered by the choosing itself"),
               Column("gain", "Gain", "gain", "Chosen less default, on validation"),
               Column("test", "Test", "score", f"Test {metric_name(metric)} of the choice, mean over rungs and seeds"),
               Column("test_gain", "Test gain", "gain", "Chosen less default on the test ladder, where both were run"),
               Column("spread", "Sensitivity", "score", "Standard deviation of validation scores over the trials"),
               Column("worst", "Worst", "score", "The lowest validation score of a trial that finished"))
    return Table("tuning", "Budget, choice and gain of each method", columns, frame,
                 " ".join(note for note in (uneven(frame), shared(searches)) if note), marked=False)


def uneven(frame: pd.DataFrame) -> str:
    """Says whether methods that are chosen alike had other budgets."""
    differ = frame.groupby(["dataset", "choose_on"])["budget"].nunique().gt(1).any()
    return "Budgets differ between methods of a dataset: their gains are not comparable." if differ else ""


def _of_several(searches: Sequence[Search]) -> bool:
    """Whether a choice is for other rungs than the one that it was made on: each is for its own elsewhere."""
    return any(set(_tested(search)) - {search["split"]} for search in searches)


def shared(searches: Sequence[Search]) -> str:
    """Says where classes that chose are tested: on a ladder, classes move between the sides."""
    most = max((count for search in searches for count in search["tested_held_out"].values()), default=0)
    return (f"Rungs swap classes: where one split chooses for others, up to {most} of its held-out classes are test "
            "classes of those; `oodml tune --choose-on each` chooses on each rung's own." if most else "")


def trials(searches: Sequence[Search]) -> Table:
    """Every trial with its validation score."""
    rows = [{"method": search["method"], "dataset": search["dataset"], "protocol": search["protocol"],
             "backbone": network, "split": search["split"], "for_splits": _for_splits(search),
             "number": trial["number"],
             "settings": settings_text(trial["set"]), "state": trial["state"], "score": trial["score"],
             "chosen": "yes" if trial["number"] == search["choice"] else "", "run": trial["run"][:12]}
            for search, network in zip(searches, networks(searches)) for trial in search["trials"]]
    columns = (Column("method", "Method"), Column("dataset", "Dataset"), Column("protocol", "Protocol"),
               Column("backbone", "Backbone"), Column("split", "Split"),
               *([Column("for_splits", "For splits")] if _of_several(searches) else []),
               Column("number", "Trial", "number", digits=0),
               Column("settings", "Configuration"), Column("state", "State"),
               Column("score", f"Validation {searches[0]['metric']}", "score"), Column("chosen", "Chosen"),
               Column("run", "Run"))
    return Table("tuning-trials", "Every trial", columns, pd.DataFrame(rows), marked=False)

"""Which runs count, and what a row of a board is called."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pandas as pd

from reports import row_settings
from reports.row_settings import NAMED
from reports.wording import counted

ROW = [*NAMED, "source"]
BASELINES = ("frozen", "random")
"""They learn nothing from the training classes: a pretrained network's features, and a random projection of them."""
DEFAULT_KINDS = ("default", "union")
"""Kinds of the splits that papers use: the default one of a dataset, the only one of a union."""
KINDS = {"default": "default", "union": "union", "swap": "swapped apart", "reverse": "swapped together",
         "removal": "classes removed", "fixed-test": "test classes fixed", "imported": "imported"}
"""How a split was made, in words."""
ABOUT_KINDS = ("How the split was made: the default one, which papers use; classes swapped between both sides, apart "
               "or together, or removed, until the distance is what was asked for; imported from a file")
FIXED_TEST = "fixed-test"
"""The kind of the splits of a control: every one has the test classes of a ladder's hardest split."""
AGAIN = "Give their `oodml run` commands again"
"""What brings runs that are set aside back to the board."""
TYPED = (*(f"base_{name}" for name in NAMED), *(f"{name}_setting" for name in NAMED), "baseline", "label",
         "ranked_with")
"""The columns that are added to those of the records: how a row is called, what it is, and where it is ranked."""


def with_setting(name: str, setting: dict[str, str]) -> str:
    """A name with what is not usual about it.

    >>> with_setting("margin", {"beta": "0.6"}), with_setting("margin", {})
    ('margin[beta=0.6]', 'margin')
    """
    return f"{name}[{','.join(f'{key}={value}' for key, value in setting.items())}]" if setting else name


def in_words(text: str) -> str:
    """A text with the settings of its names as a reader says them; those that hold lists stay as they are.

    >>> in_words("resnet50, protocol oodml[epochs=40]"), in_words("glyphs[epochs=4,steps_per_epoch=0]")
    ('resnet50, protocol oodml, 40 epochs', 'glyphs, 4 epochs, steps_per_epoch=0')
    >>> in_words("oodml[study=photos-cars]")
    'oodml, study photos-cars'
    """
    text = re.sub(r"\[study=([^][]*)\]", r", study \1", text)
    return re.sub(r"\[(\w+=[^][]*)\]", lambda found: ", " + ", ".join(
        re.sub(r"^epochs=(\d+)$", lambda length: counted(int(length[1]), "epoch", "epochs"), one)
        for one in found[1].split(",")), text)


def controls(frame: pd.DataFrame) -> pd.Series:
    """Which runs are on splits with fixed test classes, beside others of their dataset on an ordinary ladder."""
    fixed = frame["kind"].eq(FIXED_TEST)
    return fixed & frame["dataset"].isin(frame.loc[~fixed, "dataset"])


def named_as(control: pd.DataFrame, runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """(the runs of controls under the names that runs of the same settings have on the ladder, notes on the others).

    Each side is named by what differs within it, so that the same name may mean two lengths of training. Of rows that
    may be ranked together, as they differ in a learning rate, it is the one with all settings of the protocol.
    """
    if control.empty:
        return control, []
    names: dict[Any, set[tuple[str, ...]]] = {}
    for key, whole, name in zip(row_settings.alike(runs), _protocol_texts(runs),
                                runs[NAMED].itertuples(index=False, name=None)):
        names.setdefault(key, set()).add(name)
        names.setdefault((*key, whole), set()).add(name)
    found = [names.get((*key, whole)) or names.get(key, set())
             for key, whole in zip(row_settings.alike(control), _protocol_texts(control))]
    here = pd.Series([len(name) == 1 for name in found], control.index)
    named = pd.DataFrame([next(iter(name)) for name in found if len(name) == 1], control.index[here], NAMED)
    notes = [f"{_set_aside(int((~here).sum()), 'with fixed test classes')}: no single row of the ladder has their "
             "settings."] if not here.all() else []
    return control[here].assign(**{name: named[name] for name in NAMED}), notes


def _protocol_texts(runs: pd.DataFrame) -> list[str]:
    return [json.dumps(one, sort_keys=True, default=str) for one in runs["protocol_settings"]]


def _ladder(runs: pd.DataFrame, wanted: Iterable[str]) -> str:
    """The ladder of one dataset that counts: the one asked for, or else the newest; what was submitted comes last."""
    runs = _as_they_came(runs)
    asked = runs[runs["ladder_name"].isin(list(wanted))]
    own = runs[runs["source"] == "run"]
    return str(next(some for some in (asked, own, runs) if len(some))["on"].iloc[-1])


def _as_they_came(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs in the order in which they came to count where they do now: when they ended, or were noted so later."""
    if "ladder_since" not in runs:
        return runs
    moved = runs["ladder_since"]  # what was noted in the second of another's end was so after it
    return runs.assign(since=moved.fillna(runs["date"]), moved=moved.notna()).sort_values(
        ["since", "moved"], kind="stable", na_position="first")


def select(frame: pd.DataFrame, ladders: Iterable[str] = ()) -> tuple[pd.DataFrame, list[str]]:
    """(one run for each cell, notes on what was set aside): the newest run of a cell, on one ladder of each dataset.

    That is the one that `ladders` names, else the newest that was run on here: a submission moves nobody's board.

    Runs of one method with different settings become rows of their own, and so do runs of one protocol with
    different settings and of one backbone with different weights. Adds the columns TYPED but for the label.
    """
    if frame.empty:
        return frame, []
    frame = frame.sort_values(["date", "identity"], kind="stable", na_position="first").reset_index(drop=True)
    frame = frame.copy()  # in one piece: pandas warns of frames in many at every new column
    frame, notes = _on_one_ladder(frame, ladders)
    frame, other_files = _on_newest_files(frame)
    notes += other_files
    frame = typed(frame)
    settings = row_settings.of_runs(frame)
    parts = {f"base_{name}": frame[name] for name in NAMED} | {f"{name}_setting": settings[name] for name in NAMED}
    names = {name: [with_setting(*pair) for pair in zip(frame[name], settings[name])] for name in NAMED}
    frame = frame.assign(**parts, **names)
    cell = ["dataset", "split", *ROW, "seed"]
    frame, again = _once(frame, [*cell, "identity"])
    notes += again
    repeated = int(frame.duplicated(cell, keep="last").sum())
    if repeated:
        notes.append(f"{_set_aside(repeated)} because a newer run of the same row, split and seed is there.")
    frame = frame.drop_duplicates(cell, keep="last").sort_values(cell, kind="stable").reset_index(drop=True)
    if "domains_of" in frame and (older := int(frame["domains_of"].eq("ensemble").sum())):
        notes.append(f"{counted(older, 'record')} of dataset-specific models, of an earlier version, "
                     f"{'has' if older == 1 else 'have'} the ensemble's accuracy on each dataset and not that of its "
                     "own model; `oodml ensemble` computes it anew.")
    return frame, notes


def _on_one_ladder(frame: pd.DataFrame, wanted: Iterable[str]) -> tuple[pd.DataFrame, list[str]]:
    """The runs on the ladder of each dataset that counts, and notes on the others."""
    notes = []
    pinned = frame["ladder_name"] if "ladder_name" in frame else pd.Series(None, frame.index, dtype=object)
    known = frame["ladder_hash"].where(pinned.notna(), frame["dataset_hash"]) if "ladder_hash" in frame else (
        frame["dataset_hash"])
    # its distances, too: a manifest whose distances were measured anew, or changed, may still bear a pinned name
    on = known.astype(str) + frame["ladder"].map(str)
    keyed = frame.assign(on=on, ladder_name=pinned)
    current = frame["dataset"].map({name: _ladder(runs, wanted) for name, runs in keyed.groupby("dataset")})
    shown = set(zip(frame["dataset"], pinned.where(on == current)))
    # a run whose rung has another number on a new ladder lies there, too
    aside = keyed[(on != current) & ~frame["identity"].isin(frame.loc[on == current, "identity"])].assign(
        ladder_name=pinned.fillna(""))
    for (dataset, name), runs in aside.groupby(["dataset", "ladder_name"], sort=True):
        if name and (dataset, name) in shown:
            notes.append(f"{_set_aside(len(runs), f'with other distances than {name} has in the newest runs')}.")
            continue
        notes.append(f"{_set_aside(len(runs), f'on the ladder {name}')}; `oodml report --ladder {name}` shows them."
                     if name else f"{_set_aside(len(runs), f'on another ladder of {dataset}')}. {AGAIN}, and those "
                     f"whose classes the ladder of {dataset} has now are kept, the others trained on it.")
    return frame[on == current].reset_index(drop=True), notes


def _on_newest_files(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The runs on the same files of each dataset as the newest, and notes on the others."""
    if "contents" not in frame:  # which records of earlier versions, and those of drawn images, do not say
        return frame, []
    ours = _as_they_came(frame[frame["source"] != "submitted"])["contents"]
    newest = frame["dataset"].map(ours.groupby(frame["dataset"]).last()).fillna(frame["contents"])
    other = frame["contents"].notna() & (frame["contents"] != newest)
    notes = [f"{_set_aside(count, f'on other files of {dataset} than the newest')}. {AGAIN} beside the files that "
             "are to count: what was done on these is shown again, the others are trained."
             for dataset, count in frame.loc[other, "dataset"].value_counts(sort=False).sort_index().items()]
    return frame[~other].reset_index(drop=True), notes


def _once(frame: pd.DataFrame, run_on: list[str]) -> tuple[pd.DataFrame, list[str]]:
    """Each run, known by some columns, once: the newest of its records, and notes on runs whose records differ.

    Folders of two machines share what was copied from one to the other, which is nothing to tell; a run that both did,
    or a record that was changed, may have another score, which nobody would see in the table.
    """
    copies = frame[frame.duplicated(run_on, keep=False)]
    # by the decimal that is shown: two machines may differ in the last bits
    apart = [(runs, scores) for _, runs in copies.groupby(run_on, sort=False, dropna=False)
             if len(scores := list(dict.fromkeys(f"{100 * one:.1f}" for one in runs["recall@1"].dropna()))) > 1]
    notes = []
    if apart:
        run, scores = apart[0][0].iloc[-1], apart[0][1]
        seed = "" if pd.isna(run["seed"]) else f", seed {int(run['seed'])}"
        notes.append(f"{counted(len(apart), 'run is', 'runs are')} in the records more than once, with different "
                     f"scores, such as {run['method']} on {run['dataset']}, split {run['split']}{seed} (Recall@1 "
                     f"{' and '.join(scores)}): the newest record counts; `oodml diff A B` compares two folders.")
    return frame.drop_duplicates(run_on, keep="last"), notes


def _set_aside(count: int, which: str = "") -> str:
    """
    >>> _set_aside(1, "on other files"), _set_aside(1200)
    ('1 run on other files is set aside', '1,200 runs are set aside')
    """
    return " ".join(filter(None, (counted(count, "run"), which, "is" if count == 1 else "are", "set aside")))


def typed(frame: pd.DataFrame) -> pd.DataFrame:
    """The runs with `base_method`, and `baseline` for those of a frozen or a random network, if not there yet."""
    if "baseline" in frame:
        return frame
    baseline = frame["family"].eq("floor") | frame["method"].isin(BASELINES)
    family = frame["family"].mask(baseline, "baseline")
    return frame.assign(base_method=frame["method"], baseline=baseline, family=family)


def evaluated_as(protocol: str) -> str:
    """A protocol's name with those of its settings alone that the score of an untrained network depends on.

    >>> evaluated_as("oodml[epochs=40,resize=288]"), evaluated_as("oodml[epochs=40]")
    ('oodml[resize=288]', 'oodml')
    """
    return _with_keys(protocol, row_settings.SEEN_IN_EVALUATION)


def ranked_as(protocol: str) -> str:
    """A protocol's name with those of its settings alone that methods must agree in to be ranked together.

    >>> ranked_as("oodml[epochs=40,lr=0.001]"), ranked_as("oodml[lr=0.001]"), ranked_as("oodml")
    ('oodml[epochs=40]', 'oodml', 'oodml')
    """
    return _with_keys(protocol, row_settings.RANKED_ALIKE)


def _with_keys(protocol: str, keys: Collection[str]) -> str:
    name, _, settings = protocol.rstrip("]").partition("[")
    known = (setting.split("=", 1) for setting in settings.split(",") if "=" in setting)
    return with_setting(name, {key: value for key, value in known if key in keys})


def labels(frame: pd.DataFrame) -> dict[tuple[str, ...], str]:
    """One name for each row: the method, with protocol, backbone and source where they vary among its rows.

    A baseline is called by its method alone where it has one row, whatever backbone its protocol gives it; what was
    submitted is always called so.
    """
    rows = frame[ROW].drop_duplicates()
    named = {}
    for _, group in rows.groupby("method", sort=True):
        varying = [key for key in ROW[1:] if group[key].nunique() > 1]
        for row in group.to_dict("records"):
            said = [key for key in ROW[1:] if key in varying or (key == "source" and row[key] == "submitted")]
            named[tuple(row[key] for key in ROW)] = " · ".join(
                in_words(row[key]) if key == "protocol" else row[key] for key in ("method", *said))
    return named


def row_keys(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    """ROW of each line, as tuples; column by column: to cut them out of a table first takes seven times as long."""
    return list(zip(*(frame[name].tolist() for name in ROW)))


def on_default(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs on default splits, of unions on their only one; all where none is on such."""
    here = runs["kind"].isin(DEFAULT_KINDS)
    return runs[here] if here.any() else runs


def is_union(frame: pd.DataFrame) -> pd.Series:
    """Which runs are of a union: those with a score for at least one of its parts."""
    parts = [column for column in frame.columns if column.startswith("domain:")]
    return pd.Series(pd.notna(frame[parts].to_numpy()).any(axis=1), frame.index)


def on_ladder(frame: pd.DataFrame, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """The runs of datasets with a ladder, every rung of which some row was run on; some columns alone if asked.

    Where methods were trained, their rungs count: a frozen network on a whole ladder makes no ladder of them. A dataset
    of which only a few rungs were run has no AGS, and would keep rows that are complete elsewhere from their mean; nor
    has one whose rungs are all at one distance.
    Records have hundreds of columns, and taking rows of them all is most of the time of a board.
    """
    baselines = typed(frame)["baseline"].tolist()
    needed = [len(known) if known and len({frd for _, frd in known}) > 1 else 0 for known in frame["ladder"]]
    rows = list(zip(*(frame[key].tolist() for key in ("dataset", *ROW)), frame["seed"].fillna(-1).tolist()))
    trained = {row[0] for row, baseline in zip(rows, baselines) if not baseline}
    rungs: dict[tuple[Any, ...], set[int]] = {row: set() for row in rows}
    for row, split, baseline in zip(rows, frame["split"].tolist(), baselines):
        if not baseline or row[0] not in trained:
            rungs[row].add(split)
    whole = {row[0] for row, count in zip(rows, needed) if 1 < count <= len(rungs[row])}
    here = pd.Series([count > 1 and row[0] in whole for row, count in zip(rows, needed)], frame.index, dtype=bool)
    return (frame if columns is None else frame[list(columns)])[here & ~is_union(frame)]

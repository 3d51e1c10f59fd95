"""In which settings runs differ from the usual ones of their method, protocol or backbone: that makes rows of them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pandas as pd

NAMED = ["method", "protocol", "backbone"]
"""Parts of a row's name that tell settings: `margin[beta=0.6]`; `base_method` and so on have the name alone."""
SEEN_IN_EVALUATION = ("augmentation", "size", "resize", "image_side", "interpolation")
"""Keys of a protocol that say what a network sees of an image when it is evaluated."""
RANKED_ALIKE = ("epochs", "steps_per_epoch", "batch_size", "train_shots", "dim", *SEEN_IN_EVALUATION)
"""Keys of a protocol that methods must agree in to be ranked together; a learning rate may be a method's own."""


def of_runs(frame: pd.DataFrame) -> dict[str, pd.Series]:
    """For each part of a row's name the settings, as texts, that every run adds to it.

    The runs must tell which of them are of a `baseline`.
    """
    weights = frame.assign(weights=frame["weights"].map(lambda value: {"weights": short_weights(value)}))
    return {"method": _unusual(frame, "method", "settings"),
            "protocol": _as_long(frame, _unusual(frame, "protocol", "protocol_settings")),
            "backbone": _unusual(weights, "backbone", "weights")}


def short_weights(weights: Any) -> Any:
    """The first digits of the SHA-256 of a file of weights, which tell it in a name; anything else as it is."""
    return weights[:8] if isinstance(weights, str) and len(weights) == 64 else weights


def _unusual(frame: pd.DataFrame, name: str, settings: str) -> pd.Series:
    """For each run the settings, as texts, in which it differs from the usual ones of its method, protocol or backbone.

    Usual is what `_usual` says of the runs of that name; where it says nothing all runs say theirs. Where a method was
    run with several values of a key of the protocol, others that were given one on the same dataset say it as well:
    they belong to the rows of its protocol. So do methods of which some were given one value and some another: they are
    not ranked against each other.
    """
    within = [*NAMED, "dataset"]
    parts = _as_texts(frame[settings])
    by_file = name == "protocol" and "overrides" in frame
    mixed = frame[within].assign(key=parts.map(str)).groupby(within, dropna=False)["key"].transform("nunique") > 1
    unusual: dict[Any, dict[str, str]] = {row: {} for row in frame.index}
    for _, group in frame[mixed].groupby(within, dropna=False, sort=True):
        here = parts[group.index]
        differing = sorted(key for key in set().union(*here) if len({part.get(key) for part in here}) > 1)
        alike = parts[frame[name] == group[name].iloc[0]]
        of_protocol = (frame[within[1:]] == group[within[1:]].iloc[0]).all(axis=1) & by_file
        usual = {}
        for key in differing:  # where no run of the method tells what the file has, those of others do
            pairs = _changes(group, name, key) or _changes(frame[of_protocol], name, key)
            usual[key] = _usual(key, [part.get(key, "-") for part in alike], pairs)
        for row in group.index:
            unusual[row] |= _other_than(usual, parts[row], differing)
        beside = frame[of_protocol & ~mixed]
        for row, changed in zip(beside.index, beside.get("overrides", ())):
            unusual[row] |= _other_than(usual, parts[row], [key for key in differing if key in (changed or {})])
    if by_file:
        for row, given in _given_differently(frame).items():
            unusual[row] |= given
    return pd.Series([dict(sorted(unusual[row].items())) for row in frame.index], index=frame.index, dtype=object)


def _as_texts(settings: pd.Series) -> pd.Series:
    """The settings of each run with their values as JSON; runs with one set of settings share that of texts."""
    texts: dict[int, dict[str, str]] = {}
    for each in settings:
        if id(each) not in texts:
            texts[id(each)] = {key: json.dumps(value, sort_keys=True, default=str) for key, value in
                               sorted((each or {}).items())}
    return settings.map(lambda each: texts[id(each)])


def _other_than(usual: dict[str, str | None], own: dict[str, str], keys: Iterable[str]) -> dict[str, str]:
    """Those of these settings that are not the usual ones."""
    return {key: own.get(key, "-").replace('"', "") for key in keys if own.get(key, "-") != usual[key]}


def alike(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    """For each run what must be the same in two of them to be of one row, though they were named apart.

    Of a `baseline`, which does not train, that is what it sees of an image alone.
    """
    names = frame[["dataset", "source", *(f"base_{name}" for name in NAMED), "weights"]]
    told = [[method or {}, *((own or {}).get(key) for key in (SEEN_IN_EVALUATION if baseline else RANKED_ALIKE))]
            for method, own, baseline in zip(frame["settings"], frame["protocol_settings"], frame["baseline"])]
    return [(*map(str, row), json.dumps(settings, sort_keys=True, default=str))
            for row, settings in zip(names.itertuples(index=False, name=None), told)]


def _given_differently(frame: pd.DataFrame) -> dict[Any, dict[str, str]]:
    """For each run the keys of RANKED_ALIKE that it was given, where other methods on these data were given others.

    What the protocol's file says of a single method is no matter of this, and a baseline does not train.
    """
    own: dict[Any, dict[str, str]] = {}
    trained = frame[~frame["baseline"] & frame["source"].ne("submitted")]
    for _, group in trained.groupby(["protocol", "backbone", "dataset"], dropna=False, sort=True):
        given = {row: {key: json.dumps(changed[key][1]).replace('"', "")
                       for key in RANKED_ALIKE if key in (changed or {})}
                 for row, changed in group["overrides"].items()}
        for key in RANKED_ALIKE:
            if len({values.get(key) for values in given.values()}) > 1:
                for row, values in given.items():
                    own.setdefault(row, {}).update({key: values[key]} if key in values else {})
    return own


def _as_long(frame: pd.DataFrame, settings: pd.Series) -> pd.Series:
    """The settings of protocols by row, those of dataset-specific models as of a network of the union with equal steps.

    The same steps are other epochs of each dataset, and the two are there to be compared.
    """
    joined = ["ensemble" in (tags or ()) for tags in frame["tags"]]
    lengths = [_steps(own or {}) if one else steps for one, own, steps in zip(
        joined, frame["protocol_settings"], frame.get("cost:steps", pd.Series(float("nan"), frame.index)))]
    rows = list(zip(frame["dataset"], frame["protocol"], frame["backbone"], lengths))
    whole = {row: own for row, one, own in zip(rows, joined, settings) if not one and (row[-1] or 0) > 0}
    return pd.Series([whole.get(row, own) if one else own for row, one, own in zip(rows, joined, settings)],
                     index=frame.index, dtype=object)


def _steps(protocol: dict[str, Any]) -> int:
    """The steps of a run, where its protocol tells them; else 0, also of a record that has anything there."""
    told = [protocol.get(key) for key in ("epochs", "steps_per_epoch")]
    return math.prod(value if isinstance(value, int) else 0 for value in told)


def _changes(runs: pd.DataFrame, name: str, key: str) -> list[list[Any]]:
    """[value in the file, value in the run] of the runs that were given another value of a key, as far as is known.

    Overrides call a key of a method's own settings METHOD.KEY, also where several of its models were put together.
    """
    if name == "backbone" or "overrides" not in runs or runs.empty:
        return []
    if name == "method":
        key = f"{str(runs[name].iloc[0]).removeprefix('ensemble:')}.{key}"
    return [changed[key] for changed in runs["overrides"] if key in (changed or {})]


def _usual(key: str, values: list[str], changes: list[list[Any]]) -> str | None:
    """The usual value of a key: what more than half of the runs have, or else what the file of the protocol has, as far
    as changes tell; of keys of RANKED_ALIKE the other way round.

    A method that was given the file's value alone bears its protocol's plain name, and so must all that it is ranked
    among.
    """
    before = {json.dumps(file, sort_keys=True) for file, _ in changes}
    file = before.pop() if len(before) == 1 else None
    if file == "null":  # the file lacks the key: so do runs with its first value, of a key that came later
        file = "-" if "-" in values else None
    return (file or _majority(values)) if key in RANKED_ALIKE else (_majority(values) or file)


def _majority(values: list[str]) -> str | None:
    """What more than half of them are, if anything."""
    value, count = Counter(values).most_common(1)[0]
    return value if 2 * count > len(values) else None

"""In what a run differs from the file of its protocol, and how that is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd

Overrides = dict[str, list[Any]]
"""{key: [its value in the protocol's file, its value in the run]} of the keys in which the two differ."""


def with_overrides(frame: pd.DataFrame, derive: Callable[..., Overrides | None] | None = None) -> pd.DataFrame:
    """The runs with `overrides` as they are against the files of today, which `derive` looks into.

    `derive(protocol_settings, method, dataset, settings)` knows the file of a protocol, which this package does not; it
    returns None where there is no such file, and then what a record says of its own time stays.
    """
    if derive is None:
        return frame
    derived: dict[str, Overrides | None] = {}
    overrides = []
    for source, old, *facts in frame[["source", "overrides", "protocol_settings", "method", "dataset",
                                      "settings"]].itertuples(index=False, name=None):
        if source == "submitted":  # trained by code of its own, whose settings are none of a protocol's
            overrides.append(old)
            continue
        key = json.dumps(facts, sort_keys=True, default=str)
        now = derived[key] = derived[key] if key in derived else derive(*facts)
        overrides.append(old if now is None else now)
    return frame.assign(overrides=pd.Series(overrides, index=frame.index, dtype=object))


def overrides_text(runs: Iterable[Overrides | None], most: int | None = None) -> str:
    """What is different in some runs from the file of their protocol, in words; empty where nothing is.

    Where the own settings of more than `most` methods differ, they are counted: each row has a cell that names them.

    >>> overrides_text([{"epochs": [200, 30]}, {"epochs": [200, 30]}])
    'epochs=30 (file: 200)'
    >>> overrides_text([{"epochs": [200, 30]}, {}, None])
    'epochs=30 (file: 200) in 1 of 3 runs; not recorded for 1 of 3 runs'
    """
    runs = list(runs)
    unknown = sum(each is None for each in runs)
    changed: dict[str, list[tuple[str, str]]] = {}
    for each in runs:
        for key, (file, run) in (each or {}).items():
            changed.setdefault(key, []).append((_value(file), _value(run)))
    said, own = [], [key for key in changed if "." in key]
    named = {key.partition(".")[0] for key in own}
    if most is not None and len(named) > most:
        changed = {key: pairs for key, pairs in changed.items() if key not in own}
        said.append(f"own settings of {len(named)} methods")
    for key, pairs in sorted(changed.items()):
        file, run = pairs[0]
        value = f"={run}" + (f" (file: {file})" if file != "null" else "") if len(set(pairs)) == 1 else ""
        said.append(f"{key}{value}" + (f" in {len(pairs)} of {len(runs)} runs" if len(pairs) < len(runs) else ""))
    unrecorded = f"not recorded for {unknown} of {len(runs)} runs" if unknown else ""
    return "; ".join(filter(None, [", ".join(said), unrecorded]))


def _value(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.4g}" if isinstance(value, float) else json.dumps(value)

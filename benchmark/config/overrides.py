"""In what a run differs from the file of its protocol: what `--set` or a study changed."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import methods
from benchmark.config import protocol as protocols
from benchmark.config import rates
from benchmark.utils.errors import UserError


def of_run(protocol: dict[str, Any], method: str, dataset: str,
           settings: dict[str, Any]) -> dict[str, list[Any]] | None:
    """{key: [value in the file, value in the run]} of all keys of the protocol and settings of the method that differ.

    None where the file is not one of the suite's, the method is not known here or the record tells no rate: then
    nothing can be said. Keys that a record does not have came after it and are not compared, but for settings of which
    it is known what earlier runs had; absolute rates of older records count as multiples of lr.

    >>> plain = protocols.load("oodml", dataset="cub", method="margin", tags=methods.get("margin").kinds).identity()
    >>> own = dataclasses.asdict(methods.get("margin").settings("cub"))
    >>> of_run({**plain, "epochs": 30}, "margin", "cub", {**own, "beta": 0.9})
    {'epochs': [200, 30], 'margin.beta': [1.2, 0.9]}
    """
    name, method = protocol.get("name"), method.removeprefix("ensemble:")  # which is of models that a method trained
    if name not in protocols.names() or "lr" not in protocol:
        return None
    try:
        entry = methods.get(method)
        file = protocols.load(name, dataset=dataset, method=method, tags=entry.kinds).identity()
        below = protocols.base_settings_of(name, entry, dataset)
        own = {key: value for one, changes in ((entry, {}), (entry.base, below)) if one is not None for key, value in
               dataclasses.asdict(one.settings(dataset, **{**protocols.settings_of(name, one), **changes})).items()}
    except (UserError, methods.MethodError):
        return None
    pairs = [(key, file.get(key), value) for key, value in protocol.items()]
    own = entry.as_trained(own)
    used = entry.as_trained(entry.came_later() | rates.of_record(entry, settings, protocol["lr"]))
    pairs += [(f"{method}.{key}", own.get(key), value) for key, value in used.items()]
    # one of them may have been through JSON, which knows no tuples
    return {key: [before, now] for key, before, now in pairs if json.dumps(before) != json.dumps(now)}

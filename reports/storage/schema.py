"""The schema of a record: which keys it has, of which kind, and what a ladder and a score must be."""

from __future__ import annotations

import math
from typing import Any

from reports import ReportError
from reports.storage.migration import SCHEMA

SOURCES = ("run", "submitted", "published")

_NUMBER = (int, float)
_MAYBE = (int, float, type(None))
_TEXT = (str, type(None))
_KEYS: dict[str, dict[str, Any] | tuple[type, ...]] = {
    "schema": (int,), "source": (str,), "identity": (str,), "dataset": (str,), "dataset_hash": _TEXT, "seed": (int,),
    "split": {"id": (int,), "kind": (str,), "iteration": _MAYBE, "frd": _MAYBE, "frd_class_means_released": _MAYBE,
              "hash": _TEXT, "train_classes": _MAYBE, "test_classes": _MAYBE, "train_images": _MAYBE,
              "test_images": _MAYBE, "ladder": (list,)},
    "method": {"name": (str,), "family": (str,), "papers": (list, tuple), "tags": (list, tuple), "summary": _TEXT,
               "cite": _TEXT, "settings": (dict,), "trains": _TEXT, "trainable_parameters": _MAYBE,
               "total_parameters": _MAYBE},
    "protocol": {"name": (str,)}, "backbone": {"name": (str,), "weights": _TEXT},
    "scores": (dict,), "chosen_epochs": (dict,), "domains": (dict,), "structure": (dict,), "curve": (list,),
    "queries": {"count": _MAYBE, "left_out": _MAYBE}, "cost": (dict,), "provenance": (dict,),
}
_OPEN = {"protocol", "queries"}
_OPTIONAL = {"split.parts": (dict,)}
"""Of a union, the number of training images of each of its datasets: {name: count}."""


def check(record: Any) -> dict[str, Any]:
    """The record itself if it follows the schema; a ReportError that names the first key which does not.

    >>> check({"schema": SCHEMA, "dataset": "glyphs"})
    Traceback (most recent call last):
    reports.ReportError: the record lacks the key 'source'
    """
    if not isinstance(record, dict):
        raise ReportError("a record is a JSON object")
    if record.get("schema") != SCHEMA:
        raise ReportError(f"the record has schema {record.get('schema')!r}, not {SCHEMA}")
    _check_keys(record, _KEYS, "")
    if record["source"] not in SOURCES:
        raise ReportError(f"source is {record['source']!r}; it is one of {', '.join(SOURCES)}")
    _check_ladder(record["split"])
    if "last" not in record["scores"]:
        raise ReportError("scores has no entry for the rule 'last'")
    for rule, scores in record["scores"].items():
        _check_fractions(scores, f"scores.{rule}")
    for domain, scores in record["domains"].items():
        _check_fractions(scores, f"domains.{domain}")
    return record


def _check_keys(part: dict[str, Any], keys: dict[str, Any], where: str) -> None:
    for key, kind in keys.items():
        if key not in part:
            raise ReportError(f"the record lacks the key '{where}{key}'")
        value = part[key]
        if isinstance(kind, dict):
            if not isinstance(value, dict):
                raise ReportError(f"'{where}{key}' is not an object")
            _check_keys(value, kind, f"{where}{key}.")
        elif not isinstance(value, kind) or isinstance(value, bool):
            raise ReportError(f"'{where}{key}' is {value!r}, not {' or '.join(k.__name__ for k in kind)}")
    if where.rstrip(".") not in _OPEN and len(part) > len(keys):
        for key in part:
            if key not in keys and not isinstance(part[key], _OPTIONAL.get(f"{where}{key}", ())):
                raise ReportError(f"the record has an unknown key '{where}{key}'")


def _check_ladder(split: dict[str, Any]) -> None:
    rungs = split["ladder"]
    for rung in rungs:
        if not (isinstance(rung, (list, tuple)) and len(rung) == 2 and isinstance(rung[0], int)
                and isinstance(rung[1], _NUMBER) and math.isfinite(rung[1])):
            raise ReportError(f"split.ladder holds {rung!r}; a rung is [id, distance]")
    ids = [rung[0] for rung in rungs]
    if ids and (len(set(ids)) != len(ids) or split["id"] not in ids):
        raise ReportError(f"split {split['id']} is not exactly once on its own ladder {ids}")


def _check_fractions(scores: Any, where: str) -> None:
    if not isinstance(scores, dict):
        raise ReportError(f"{where} is not an object")
    for metric, value in scores.items():
        if not isinstance(value, _NUMBER) or isinstance(value, bool) or not 0 <= value <= 1:
            raise ReportError(f"{where}.{metric} is {value!r}; scores are fractions between 0 and 1")

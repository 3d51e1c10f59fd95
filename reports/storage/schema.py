"""The schema of a record: which keys it has, of which kind, and what a ladder and a score must be."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import NotRequired, TypedDict

from reports import ReportError
from reports.safe_text import one_line, printable
from reports.storage import paths
from reports.storage.json_text import holds_controls
from reports.storage.migration import SCHEMA

Source = Literal["run", "submitted", "published"]
SOURCES: tuple[str, ...] = get_args(Source)
LONGEST = 100
"""Bytes of the name of a protocol, a backbone or its weights."""


def _small(value: float) -> float:
    if abs(value) >= 2.0**53:  # an integer beyond is no number of a table; NaN becomes null when it is written
        raise ValueError("too large a number")
    return value


_FINITE = Annotated[float, Field(allow_inf_nan=False)]
_HASH = Annotated[str, Field(pattern="^[0-9a-f]{8,128}$")]  # a part of it names the folder of a run
_NUMBER, _TEXT, _FACTS = _FINITE | None, str | None, dict[str, Any]
_MEASURED = Annotated[float, AfterValidator(_small)]
_WHOLE = Annotated[int, Field(gt=-2**31, lt=2**31)]
_NAMES = Annotated[tuple[str, ...], Field(strict=False)]  # a list where it was read from JSON, as a rung is
_RUNG = Annotated[tuple[_WHOLE, _FINITE], Field(strict=False)]
_SCORES = dict[str, dict[str, Annotated[float, Field(ge=0, le=1)]]]
_KEYS: dict[str, Any] = {
    "schema": int, "source": Source, "identity": _HASH, "dataset": str, "dataset_hash": _TEXT, "seed": _WHOLE,
    "contents": NotRequired[str],  # the hash of the dataset's files, where images are files
    "split": {"id": _WHOLE, "kind": str, "iteration": _NUMBER, "frd": _NUMBER, "frd_class_means_released": _NUMBER,
              "hash": _TEXT, "train_classes": _NUMBER, "test_classes": _NUMBER, "train_images": _NUMBER,
              "test_images": _NUMBER, "ladder": list[_RUNG],
              "frd_equal_n": NotRequired[_NUMBER],  # with as many images a side on every rung
              "since": NotRequired[str],  # when a run done before was put on this ladder, or came to count again
              "parts": NotRequired[_FACTS],  # of a union, the number of training images of each of its datasets
              "pinned": NotRequired[dict[str, str]]},  # name and hash of the pinned ladder it is of
    "method": {"name": str, "family": str, "papers": _NAMES, "tags": _NAMES, "summary": _TEXT, "cite": _TEXT,
               "settings": _FACTS, "trains": _TEXT, "trainable_parameters": _NUMBER, "total_parameters": _NUMBER},
    "protocol": {"name": str}, "backbone": {"name": str, "weights": _TEXT, "facts": NotRequired[_FACTS]},
    "scores": _SCORES, "chosen_epochs": _FACTS, "domains": _SCORES, 
    "structure": dict[str, dict[str, _MEASURED | list[Any] | None] | None],
    "thresholds": NotRequired[_FACTS],  # see `operating_points`; records of earlier versions have none
    "curve": list[dict[str, float | None]],
    "queries": {"count": _NUMBER, "left_out": _NUMBER},
    # of a run that was resumed, seconds, steps and joules of `cost` and the seconds of `provenance.phases`, of `all` of
    # it and of each phase, are those of all attempts, of each but the last up to the checkpoint from which it went on
    "cost": _FACTS, "provenance": _FACTS,
}
_OPEN = {"protocol", "queries"}
_WORDS = {"missing": "the record lacks the key '{}'", "extra_forbidden": "the record has an unknown key '{}'",
          "string_pattern_mismatch": "'{}' is {!r}: it has 8 to 128 hex digits, as `oodml run` writes it"}


def _typed(name: str, keys: dict[str, Any]) -> Any:
    """A table of keys and kinds as a type that pydantic checks; tables within it likewise."""
    kinds = {key: _typed(key, kind) if isinstance(kind, dict) else kind for key, kind in keys.items()}
    table: Any = TypedDict(name, kinds)  # type: ignore[misc]
    extra: Any = "allow" if name in _OPEN else "forbid"
    table.__pydantic_config__ = ConfigDict(strict=True, extra=extra)  # type: ignore[attr-defined]
    return table


_RECORD: TypeAdapter[Any] = TypeAdapter(_typed("record", _KEYS))


def check(record: Any, texts: bool = True) -> dict[str, Any]:
    """The record itself if it follows the schema; a ReportError that names the first key which does not.

    Without `texts` its texts are known to hold no control characters: looking at each takes longer than all the rest.

    >>> check({"schema": SCHEMA, "dataset": "glyphs"})
    Traceback (most recent call last):
    reports.ReportError: the record lacks the key 'source'
    """
    if not isinstance(record, dict):
        raise ReportError("a record is a JSON object")
    if record.get("schema") != SCHEMA:
        raise ReportError(f"the record has schema {record.get('schema')!r}, not {SCHEMA}")
    try:
        _RECORD.validate_python(record)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        words = _WORDS.get(first["type"], "'{}' is {!r}: {}")
        raise ReportError(one_line(words.format(key, first["input"], first["msg"]), 300)) from None
    ids, own = [rung[0] for rung in record["split"]["ladder"]], record["split"]["id"]
    if ids and (len(set(ids)) != len(ids) or own not in ids):
        raise ReportError(f"split {own} is not exactly once on its own ladder {ids}")
    if "last" not in record["scores"]:
        raise ReportError("scores has no entry for the rule 'last'")
    for part, name in (("protocol", record["protocol"]["name"]), ("backbone", record["backbone"]["name"]),
                       ("weights", record["backbone"]["weights"] or "")):
        if len(name.encode()) > LONGEST:  # it becomes a part of the names of files
            raise ReportError(f"the name of the {part} has more than {LONGEST} bytes: {one_line(name, 60)}")
    for part in ("protocol", "backbone"):
        if printable(record[part]["name"]) != record[part]["name"]:  # no SVG may hold a control character
            raise ReportError(f"the name of the {part} holds control characters: {one_line(record[part]['name'], 120)}")
    if texts and holds_controls(record):
        raise ReportError(_where_controlled(record))
    paths.plain(record["dataset"], "dataset")
    paths.plain(paths.of_method(record["method"]["name"]), "method")
    return record


def _where_controlled(content: Any, path: str = "") -> str:
    """What is said of the first text with control characters, with the keys that lead to it."""
    parts = content.items() if isinstance(content, dict) else enumerate(content)
    key, part = next((key, part) for key, part in parts if holds_controls([key, part]))
    if holds_controls(key):
        return one_line(f"a key in '{path}' holds control characters: {key}; take them out", 300)
    path = f"{path}.{key}" if path else str(key)
    if not isinstance(part, str):
        return _where_controlled(part, path)
    return one_line(f"'{path}' holds control characters: {part}; take them out", 300)

"""Many records in one small text file: what they share is told once, and each run is a line of what is its own.

A file is a list of JSON lines in blocks. A block begins with an object

    {"pack": 1, "common": {...}, "keys": ["/split/id", "/scores/last/recall@1", ...], "lists": {"/split/hash": [...]}}

and every line after it is the list of the values of those keys (JSON pointers, RFC 6901) for one run; of a key in
`lists` its value is a place in the list there. `common` with these values set is the entry of that run, bit for bit:
an entry is an object {"record": ..., "beside": {file: ...}}.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from json.encoder import encode_basestring
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports import ReportError
from reports.safe_text import one_line
from reports.storage import paths
from reports.storage.json_text import from_json, may_hold_controls

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
ENDING = ".runs.jsonl"
Entry = dict[str, Any]


def _leaves(value: Entry, path: str = "", found: Entry | None = None) -> Entry:
    """Every value that is no object, or an empty one, by its JSON pointer.

    >>> _leaves({"a": {"b/c": 1}, "d": {}})
    {'/a/b~1c': 1, '/d': {}}
    """
    found = {} if found is None else found
    for key in sorted(value):
        part, way = value[key], f"{path}/{_escaped(key)}"
        if isinstance(part, dict) and part:
            _leaves(part, way, found)
        else:
            found[way] = part
    return found


@lru_cache(maxsize=4096)
def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


@lru_cache(maxsize=4096)
def _way(path: str) -> tuple[tuple[str, ...], str]:
    """The keys of a JSON pointer: those that lead to the last, and the last."""
    *way, last = (part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:])
    return tuple(way), last


def _nested(leaves: Iterable[tuple[str, Any]], start: Entry | None = None) -> Entry:
    """The object whose leaves these are, on top of a copy of another.

    >>> _nested([("/a/b~1c", 1), ("/d", {})])
    {'a': {'b/c': 1}, 'd': {}}
    """
    found: Entry = _copied(start or {})
    for path, value in leaves:
        way, last = _way(path)
        here = found
        for part in way:
            here = here.setdefault(part, {})
        here[last] = value
    return found


def _copied(value: Any) -> Any:
    return {key: _copied(part) for key, part in value.items()} if isinstance(value, dict) else value


def to_text(entries: Iterable[Entry]) -> str:
    """The entries as the text of a file; the same entries give the same text in whatever order they come."""
    blocks: dict[tuple[str, ...], list[tuple[str, dict[str, Any]]]] = {}
    for entry in entries:
        leaves = _leaves(entry)
        record = entry["record"]
        shape = (record["protocol"]["name"], record["backbone"]["name"], *leaves)
        place = f"{record['split']['id']:06d} {record['seed']:06d} {record['identity']}"
        blocks.setdefault(shape, []).append((place, leaves))
    lines: list[Any] = []
    for _, block in sorted(blocks.items()):
        runs = [leaves for _, leaves in sorted(block, key=lambda one: one[0])]
        texts = {path: _texts([leaves[path] for leaves in runs]) for path in runs[0]}
        keys = [path for path, values in texts.items() if len(values) > 1]
        common = _nested((path, runs[0][path]) for path, values in texts.items() if len(values) == 1)
        lists = {path: sorted(texts[path]) for path in keys if 2 * len(texts[path]) <= len(runs)}
        places = {path: {text: i for i, text in enumerate(known)} for path, known in lists.items()}
        lines.append({"pack": FORMAT, "common": common, "keys": keys,
                      "lists": {path: [json.loads(text) for text in known] for path, known in lists.items()}})
        lines += [[places[path][_line(leaves[path])] if path in places else leaves[path] for path in keys]
                  for leaves in runs]
    return "".join(_line(line) + "\n" for line in lines)


def _texts(values: list[Any]) -> set[str]:
    """The different values as JSON; runs that were packed together share those that are equal, which need one look."""
    return {_line(value) for value in {id(value): value for value in values}.values()}


_encoded = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def _line(value: Any) -> str:
    """The value as JSON in one line; numbers and texts, most of what is packed, without the encoder."""
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return repr(value)
    return encode_basestring(value) if type(value) is str else _encoded(value)


def from_text(text: str) -> Iterator[Entry]:
    """The entries of a file; a ReportError where it is cut or not of this format."""
    head: dict[str, Any] | None = None
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), 1):
        try:
            found = from_json(line.encode(errors="surrogatepass"))
            if isinstance(found, dict):
                head = found
                if head["pack"] != FORMAT:
                    raise ReportError(f"line {number}: format {head['pack']!r}, this version of oodml reads {FORMAT}")
            elif head is None or len(found) != len(head["keys"]):
                raise ValueError("its values do not fit the keys of its block")
            else:
                lists = head["lists"]
                values = (lists[key][value] if key in lists else value for key, value in zip(head["keys"], found))
                yield _nested(zip(head["keys"], values), head["common"])
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise ReportError(f"line {number} is damaged ({error})") from None


def name_of(record: dict[str, Any]) -> str:
    """What a run is called within a file: SPLIT-sSEED-HASH8."""
    name = f"{record['split']['id']}-s{record['seed']}-{record['identity'][:8]}"
    return name.replace("/", "_")  # the record is not checked yet: whatever it says, it lies within its file


def read(path: Path | str) -> dict[str, Entry]:
    """The entries of a file by their names; read once as long as the file stays as it is."""
    return _known(path)[0]


def suspect(run: Path | str) -> bool:
    """Whether the texts of a packed run may hold control characters: those of any run of its file may."""
    return _known(os.path.dirname(run))[1]


def _known(path: Path | str) -> tuple[dict[str, Entry], bool]:
    try:
        state = os.stat(path)
    except OSError as error:
        raise ReportError(f"cannot read {path}: {error.strerror}") from None
    return _read(str(path), state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=512)
def _read(path: str, changed: int, size: int) -> tuple[dict[str, Entry], bool]:
    try:
        raw = paths.content(path)
        entries = {name_of(entry["record"]): entry for entry in from_text(raw.decode("utf-8"))}
        if not entries:
            raise ReportError("it holds no run")
        return entries, may_hold_controls(raw)
    except (ReportError, OSError, UnicodeDecodeError, KeyError, TypeError, RecursionError) as error:
        mend = "" if paths.out_of_reach(error) else "; take it from where it came, or pack the runs again"
        raise ReportError(f"{path}: {error}{mend}") from None


def beside(run: Path | str, name: str) -> Any:
    """The JSON file that lies beside a record, in its folder or packed with it; None where there is none.

    A packed run has the path FILE.runs.jsonl/SPLIT-sSEED-HASH8, as if the file were a folder.
    """
    home, own = os.path.split(run)
    if home.endswith(ENDING):
        return read(home)[own].get("beside", {}).get(name)
    path = os.path.join(run, name)
    if not os.path.exists(path):
        return None
    try:
        return from_json(paths.content(path))
    except (OSError, ValueError) as error:
        said = "cannot be read" if paths.out_of_reach(error) else "is damaged"
        mend = "" if paths.out_of_reach(error) else "; delete it and make it again"
        raise ReportError(f"{path} {said} ({error}){mend}") from None


def rows_beside(runs: pd.DataFrame, name: str, schema: int, rows: Callable[[Any], list[tuple[Any, ...]]],
                remedy: str) -> list[tuple[Any, ...]]:
    """The rows of a JSON file beside each record, after what `runs` says of the run; its last column is the path.

    A run without the file has none; one whose file is damaged or of another schema has none, with a warning.
    """
    found: list[tuple[Any, ...]] = []
    for *key, run in runs.itertuples(index=False, name=None):
        try:
            content = beside(run, name)
            if content is None:
                continue
            if content["schema"] != schema:
                raise ValueError(f"not of schema {schema}")
            found += [(*key, *row) for row in rows(content)]
        except (ReportError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            warnings.warn(f"{run}/{name} is left out ({one_line(repr(error), 300)}); delete it and {remedy}",
                          stacklevel=3)
    return found


def record(run: Path | str) -> Entry:
    """The record of a packed run, its curve as a list of points again."""
    home, own = os.path.split(run)
    found = read(home)[own]["record"]
    return found | {"curve": _points(found["curve"])}


def _points(columns: Any) -> list[dict[str, Any]]:
    """A curve as a list of points, from its columns."""
    if not columns:
        return []
    rows = zip(*columns.values())
    return [{key: value for key, value in zip(columns, row) if value is not None} for row in rows]

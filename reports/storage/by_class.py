"""The results of queries summed by class: what statistics over classes need of a run.

They are counted from its `queries.npz`. A run that travelled without its queries has `classes.json` instead:
{"side": {"classes": [...], "queries": [...]}, "hits": ...}, hits at rank 1 of each class as a list of numbers or, where
all are below 79, as a text of one character each, "0" for none and on in the order of ASCII. `precision` has the mean
average precision of each class by measure, two letters of base 64 each (4095: 1). Of a union, `side` names the part of
each class in `parts`, and `part_hits` and `part_precision` are those in the gallery of the part. A packed run names its
side by a hash, and `sides.json` in the folder of its pack tells what it is.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import string
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from reports import ReportError
from reports.storage import packed, paths
from reports.storage.json_text import from_json
from reports.storage.queries import FULL, NAME, PRECISION, array

SUMMED = "classes.json"
SIDES = "sides.json"
_OWN = {f"{start}{name}.npy" for start in ("", "part_") for name in ("first_hit", *PRECISION.values())}
"""Arrays that are a run's own; the others are alike for all runs on a test side."""


@dataclass(frozen=True)
class ByClass:
    """For each class of a test side its key, its queries, and how many of them found their class in the first k.

    Where precision is averaged, `hits` are the sums of it. Of a union `parts` names the part of each class, and
    `part_hits` are those of a search in that part alone.
    """

    keys: np.ndarray
    queries: np.ndarray
    hits: np.ndarray
    parts: np.ndarray | None = None
    part_hits: np.ndarray | None = None


@dataclass(frozen=True)
class _Side:
    """What the runs on one test side share: the class of each query that counts, and the classes that have some."""

    counted: np.ndarray
    labels: np.ndarray
    there: np.ndarray
    keys: np.ndarray
    queries: np.ndarray
    parts: np.ndarray | None = None

    @classmethod
    def of(cls, counted: np.ndarray, labels: np.ndarray, names: np.ndarray | None = None,
           parts: np.ndarray | None = None) -> _Side:
        labels = labels[counted].astype(np.int64)
        queries = np.bincount(labels)
        there = np.flatnonzero(queries)
        if parts is not None:
            parts = parts[counted][np.unique(labels, return_index=True)[1]]
        return cls(counted, labels, there, there if names is None else names[there], queries[there], parts)

    def sum(self, outcomes: np.ndarray) -> np.ndarray:
        """The sum of the outcomes of the queries of each class."""
        outcomes = outcomes[self.counted]
        if outcomes.dtype == bool:
            return np.bincount(self.labels[outcomes], minlength=int(self.there[-1]) + 1)[self.there]
        return np.bincount(self.labels, outcomes, minlength=int(self.there[-1]) + 1)[self.there]


class Reader:
    """Reads results by class; runs on one split hold the same labels, which are decompressed and counted once."""

    def __init__(self, *metrics: str) -> None:
        ranks = {metric: re.fullmatch(r"recall@(\d+)", metric) for metric in metrics or ("recall@1",)}
        self.ranks = {metric: int(recall[1]) if recall else 0 for metric, recall in ranks.items()
                      if recall or metric in PRECISION}
        """The metrics whose single outcomes runs keep, with the k of recall@k."""
        self._kept: dict[tuple[Any, ...], _Side] = {}

    def read(self, folder: Path | str) -> dict[str, ByClass]:
        """Those of a run by metric, as far as it kept them. Classes are named where the file names them."""
        if not self.ranks:
            return {}
        path = os.path.join(folder, NAME)
        found: dict[str, ByClass] = {}
        try:
            with zipfile.ZipFile(io.BytesIO(paths.content(path))) as file:
                names = set(file.namelist())
                for metric in self.ranks:
                    outcomes = self._outcomes(file, names, metric, "")
                    if outcomes is not None:
                        side, within = self._side(file), self._outcomes(file, names, metric, "part_")
                        found[metric] = ByClass(side.keys, side.queries, side.sum(outcomes), side.parts,
                                                None if within is None else side.sum(within))
            return found
        except (FileNotFoundError, NotADirectoryError):
            return _summed(folder, self.ranks)
        except Exception as error:  # zipfile and numpy answer damaged bytes with a dozen kinds of errors
            raise ReportError(f"{path} is damaged ({error}); delete the run's folder and run it again") from None

    def _outcomes(self, file: zipfile.ZipFile, names: set[str], metric: str, start: str) -> np.ndarray | None:
        """What a metric is the mean of, query by query; None where the file does not hold it."""
        k = self.ranks[metric]
        name = start + ("first_hit" if k else PRECISION[metric])
        if f"{name}.npy" not in names:
            return None
        values = array(file, name)
        return (values > 0) & (values <= k) if k else values / FULL

    def _side(self, file: zipfile.ZipFile) -> _Side:
        shared = [info for info in file.infolist() if info.filename not in _OWN]
        key = tuple((info.filename, info.CRC, info.file_size) for info in shared)
        if key not in self._kept:
            there = {info.filename for info in shared}
            labels = array(file, "labels")
            counted = np.unpackbits(array(file, "counted"), count=len(labels)).astype(bool)
            parts = array(file, "part_names")[array(file, "part")] if "part.npy" in there else None
            self._kept[key] = _Side.of(counted, labels, array(file, "classes") if "classes.npy" in there else None,
                                       parts)
        return self._kept[key]


def _summed(run: Path | str, metrics: Iterable[str]) -> dict[str, ByClass]:
    content = packed.beside(run, SUMMED)
    if content is None:
        return {}
    try:
        return {metric: _summed_metric(run, content, metric) for metric in metrics
                if metric == "recall@1" or metric in content.get("precision", {})}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ReportError(f"{run}: the queries by class are damaged ({error}); pack the runs again") from None


def _summed_metric(run: Path | str, content: dict[str, Any], metric: str) -> ByClass:
    side = content["side"]
    keys, queries, parts = _arrays(side) if not isinstance(side, str) else _shared_arrays(
        os.path.join(os.path.dirname(os.path.dirname(run)), SIDES), side)
    if metric == "recall@1":
        hits, within = _counts(content["hits"]), _counts(content.get("part_hits"))
    else:
        hits, within = (None if text is None else _from_letters(text) * queries for text in
                        (content["precision"][metric], content.get("part_precision", {}).get(metric)))
    if not len(keys) == len(queries) == len(hits):
        raise ValueError(f"{len(hits)} hits of {len(keys)} classes")
    return ByClass(keys, queries, hits, parts, within)


def _counts(hits: str | list[int] | None) -> Any:
    if hits is None:
        return None
    return (np.frombuffer(hits.encode("ascii"), np.uint8).astype(np.int64) - ord("0") if isinstance(hits, str) else
            np.array(hits, np.int64))


def _counts_text(counts: np.ndarray) -> str | list[int]:
    return (counts + ord("0")).astype(np.uint8).tobytes().decode("ascii") if counts.max() < 79 else counts.tolist()


def _letters(shares: np.ndarray) -> str:
    """Numbers of [0, 1] as two letters each.

    >>> _letters(np.array([0.0, 1.0, 0.5])), _from_letters("AA//").tolist()
    ('AA//gA', [0.0, 1.0])
    """
    codes = np.rint(4095 * shares).astype(int)
    return "".join(_BASE64[code // 64] + _BASE64[code % 64] for code in codes.tolist())


def _from_letters(text: str) -> np.ndarray:
    places = np.array([_PLACES[letter] for letter in text]).reshape(-1, 2)
    return (64 * places[:, 0] + places[:, 1]) / 4095


_BASE64 = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
_PLACES = {letter: place for place, letter in enumerate(_BASE64)}


def _arrays(side: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The classes of a split, the queries of each and, of a union, the part of each."""
    return (np.array(side["classes"]), np.array(side["queries"]),
            np.array(side["parts"]) if "parts" in side else None)


@lru_cache(maxsize=256)
def _shared_arrays(path: str, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The same of packed runs, which all runs on a split have in common."""
    return _arrays(_sides(path)[name])


@lru_cache(maxsize=16)
def _sides(path: str) -> dict[str, Any]:
    return from_json(paths.content(path))


def kept(run: Path | str) -> bool:
    """Whether a run kept the results of its queries, one by one or summed by class."""
    try:
        return os.path.exists(os.path.join(run, NAME)) or packed.beside(run, SUMMED) is not None
    except ReportError:  # damaged: `Reader.read` says so
        return False


def summing() -> Reader:
    """A reader of all that `summed` tells; one for many runs reads what they share once."""
    return Reader("recall@1", *PRECISION)


def summed(run: Path | str, reader: Reader | None = None) -> dict[str, Any] | None:
    """What `classes.json` says of a run that kept its queries; None where it kept none."""
    found = (reader or summing()).read(run)
    by_class = found.pop("recall@1", None)
    if by_class is None:
        return None
    side: dict[str, Any] = {"classes": by_class.keys.tolist(), "queries": by_class.queries.tolist()}
    content: dict[str, Any] = {"side": side, "hits": _counts_text(by_class.hits)}
    if by_class.parts is not None and by_class.part_hits is not None:
        side["parts"] = by_class.parts.tolist()
        content["part_hits"] = _counts_text(by_class.part_hits)
    for measure, precise in found.items():
        content.setdefault("precision", {})[measure] = _letters(precise.hits / precise.queries)
        if precise.part_hits is not None:
            content.setdefault("part_precision", {})[measure] = _letters(precise.part_hits / precise.queries)
    return content


def side_name(side: dict[str, Any]) -> str:
    """The hash by which packed runs name their classes and queries."""
    return hashlib.sha256(json.dumps(side, sort_keys=True).encode()).hexdigest()[:12]

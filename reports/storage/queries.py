"""The results of single queries: `queries.npz` beside a record, how it is written, and how it is read, by class.

`queries.npz` holds for each query the rank of its first hit in the smallest integers that hold it (0: none looked at),
whether it counts as bits, its class, and the names of the classes, by which queries of different rungs are matched.

A run that travelled without its queries has `classes.json` instead: {"side": {"classes": [...], "queries": [...]},
"hits": ...}, hits at rank 1 of each class as a list of numbers or, where all are below 79, as a text of one character
each, "0" for none and on in the order of ASCII. A packed run names its side by a hash, and `sides.json` in the folder
of its pack tells what it is.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from reports import ReportError
from reports.storage import packed

NAME = "queries.npz"
SUMMED = "classes.json"
SIDES = "sides.json"


@dataclass(frozen=True)
class ByClass:
    """For each class of a test side its key, its queries, and how many of them found their class in the first k."""

    keys: np.ndarray
    queries: np.ndarray
    hits: np.ndarray


@dataclass(frozen=True)
class QueryResults:
    """For each query the rank of its first hit (0: none looked at), whether it counts, and its class."""

    first_hit: np.ndarray
    counted: np.ndarray
    labels: np.ndarray
    classes: np.ndarray | None = None
    """Names of the classes that `labels` count."""

    def save(self, path: Path) -> None:
        """Writes them in the format of `queries.npz`."""
        first = self.first_hit.astype(np.min_scalar_type(int(self.first_hit.max(initial=0))))
        named: dict[str, Any] = {} if self.classes is None else {"classes": self.classes}
        with open(path, "wb") as file:
            np.savez_compressed(file, first_hit=first, counted=np.packbits(self.counted),
                                labels=self.labels.astype(np.int32), **named)


@dataclass(frozen=True)
class _Side:
    """What the runs on one test side share: the class of each query that counts, and the classes that have some."""

    counted: np.ndarray
    labels: np.ndarray
    there: np.ndarray
    keys: np.ndarray
    queries: np.ndarray

    @classmethod
    def of(cls, counted: np.ndarray, labels: np.ndarray, names: np.ndarray | None = None) -> _Side:
        labels = labels[counted].astype(np.int64)
        queries = np.bincount(labels)
        there = np.flatnonzero(queries)
        return cls(counted, labels, there, there if names is None else names[there], queries[there])

    def sum(self, first_hit: np.ndarray, k: int) -> ByClass:
        first = first_hit[self.counted]
        hits = np.bincount(self.labels[(first > 0) & (first <= k)], minlength=int(self.there[-1]) + 1)
        return ByClass(self.keys, self.queries, hits[self.there])


class Reader:
    """Reads results by class; runs on one split hold the same labels, which are decompressed and counted once."""

    def __init__(self, k: int = 1) -> None:
        self.k = k
        self._kept: dict[tuple[Any, ...], _Side] = {}

    def read(self, folder: Path | str) -> ByClass | None:
        """Those of a run; None where it kept none. Classes are named where the file names them."""
        path = os.path.join(folder, NAME)
        try:
            with zipfile.ZipFile(path) as file:
                return self._side(file).sum(_array(file, "first_hit"), self.k)
        except (FileNotFoundError, NotADirectoryError):
            return _summed(folder) if self.k == 1 else None
        except Exception as error:  # zipfile and numpy answer damaged bytes with a dozen kinds of errors
            raise ReportError(f"{path} is damaged ({error}); delete the run's folder and run it again") from None

    def _side(self, file: zipfile.ZipFile) -> _Side:
        shared = [info for info in file.infolist() if info.filename != "first_hit.npy"]
        key = tuple((info.filename, info.CRC, info.file_size) for info in shared)
        if key not in self._kept:
            labels = _array(file, "labels")
            counted = np.unpackbits(_array(file, "counted"), count=len(labels)).astype(bool)
            named = any(info.filename == "classes.npy" for info in shared)
            self._kept[key] = _Side.of(counted, labels, _array(file, "classes") if named else None)
        return self._kept[key]


def _summed(run: Path | str) -> ByClass | None:
    content = packed.beside(run, SUMMED)
    if content is None:
        return None
    try:
        side = content["side"]
        if isinstance(side, str):
            side = _sides(os.path.join(os.path.dirname(os.path.dirname(run)), SIDES))[side]
        hits = content["hits"]
        hits = [ord(letter) - ord("0") for letter in hits] if isinstance(hits, str) else hits
        keys, queries = np.array(side["classes"]), np.array(side["queries"])
        if not len(keys) == len(queries) == len(hits):
            raise ValueError(f"{len(hits)} hits of {len(keys)} classes")
        return ByClass(keys, queries, np.array(hits, np.int64))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ReportError(f"{run}: the queries by class are damaged ({error}); pack the runs again") from None


@lru_cache(maxsize=16)
def _sides(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def summed(run: Path | str) -> dict[str, Any] | None:
    """What `classes.json` says of a run that kept its queries; None where it kept none."""
    by_class = Reader().read(run)
    if by_class is None:
        return None
    hits: list[int] = by_class.hits.tolist()
    return {"side": {"classes": by_class.keys.tolist(), "queries": by_class.queries.tolist()},
            "hits": "".join(chr(ord("0") + count) for count in hits) if max(hits) < 79 else hits}


def side_name(side: dict[str, Any]) -> str:
    """The hash by which packed runs name their classes and queries."""
    return hashlib.sha256(json.dumps(side, sort_keys=True).encode()).hexdigest()[:12]


def _array(file: zipfile.ZipFile, name: str) -> np.ndarray:
    raw = file.read(f"{name}.npy")
    start = 10 + int.from_bytes(raw[8:10], "little")
    dtype, shape = _header(raw[:start])
    return np.frombuffer(raw, dtype, offset=start).reshape(shape)


@lru_cache(maxsize=256)
def _header(raw: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """What the head of an array's file says; thousands of files have the same, and reading it takes longest."""
    file = io.BytesIO(raw)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("not an array of numpy's format 1.0")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject:
        raise ValueError("an array of objects")
    return dtype, shape

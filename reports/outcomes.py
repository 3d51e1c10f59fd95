"""The outcomes of single queries, as `queries.npz` beside a record keeps them, summed by class."""

from __future__ import annotations

import io
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reports import ReportError

NAME = "queries.npz"


@dataclass(frozen=True)
class ByClass:
    """For each class of a test side its key, its queries, and how many of them found their class in the first k."""

    keys: np.ndarray
    queries: np.ndarray
    hits: np.ndarray

    @property
    def score(self) -> float:
        """recall@k over all queries that count."""
        return float(self.hits.sum() / self.queries.sum())


def by_class(first_hit: np.ndarray, counted: np.ndarray, labels: np.ndarray, k: int = 1) -> ByClass:
    """Hits and queries of each class; `first_hit` is the rank of the first hit, 0 where none was looked at.

    >>> by_class(np.array([1, 3, 0, 2]), np.array([True] * 4), np.array([0, 0, 1, 1]), 2)
    ByClass(keys=array([0, 1]), queries=array([2, 2]), hits=array([1, 1]))
    """
    hit = (first_hit > 0) & (first_hit <= k)
    queries = np.bincount(labels[counted], minlength=int(labels.max(initial=-1)) + 1)
    hits = np.bincount(labels[counted & hit], minlength=len(queries))
    there = np.flatnonzero(queries)
    return ByClass(there, queries[there], hits[there])


class Reader:
    """Reads outcomes by class; runs on one split hold the same labels, which are decompressed once."""

    def __init__(self, k: int = 1) -> None:
        self.k = k
        self._kept: dict[tuple[str, int, int], np.ndarray] = {}

    def read(self, folder: Path | str) -> ByClass | None:
        """The outcomes of a run; None where it kept none. Classes are named where the file names them."""
        path = Path(folder) / NAME
        try:
            with zipfile.ZipFile(path) as file:
                names = set(file.namelist())
                first, labels = _array(file, "first_hit"), self._shared(file, "labels")
                counted = np.unpackbits(self._shared(file, "counted"), count=len(first)).astype(bool)
                found = by_class(first, counted, labels, self.k)
                if "classes.npy" not in names:
                    return found
                return ByClass(self._shared(file, "classes")[found.keys], found.queries, found.hits)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, EOFError, IndexError, zipfile.BadZipFile, zlib.error) as error:
            raise ReportError(f"{path} is damaged ({error}); delete the run's folder and run it again") from None

    def _shared(self, file: zipfile.ZipFile, name: str) -> np.ndarray:
        info = file.getinfo(f"{name}.npy")
        key = name, info.CRC, info.file_size
        if key not in self._kept:
            self._kept[key] = _array(file, name)
        return self._kept[key]


def _array(file: zipfile.ZipFile, name: str) -> np.ndarray:
    return np.lib.format.read_array(io.BytesIO(file.read(f"{name}.npy")), allow_pickle=False)

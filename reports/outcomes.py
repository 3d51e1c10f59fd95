"""The outcomes of single queries, as `queries.npz` beside a record keeps them, summed by class."""

from __future__ import annotations

import zipfile
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


def read(folder: Path, k: int = 1) -> ByClass | None:
    """The outcomes of a run by class; None where the run kept none. Classes are named where the file names them."""
    path = Path(folder) / NAME
    try:
        with np.load(path) as file:
            first, labels = file["first_hit"], file["labels"]
            counted = np.unpackbits(file["counted"], count=len(first)).astype(bool)
            found = by_class(first, counted, labels, k)
            return ByClass(file["classes"][found.keys], found.queries, found.hits) if "classes" in file else found
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, IndexError, zipfile.BadZipFile) as error:
        raise ReportError(f"{path} is damaged ({error}); delete the run's folder and run it again") from None

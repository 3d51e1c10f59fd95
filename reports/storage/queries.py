"""The results of single queries: `queries.npz` beside a record, how it is written and how it is read.

`queries.npz` holds for each query the rank of its first hit in the smallest integers that hold it (0: none looked at),
whether it counts as bits, its class, the names of the classes, by which queries of different rungs are matched, and
its average precision as `ap_r` and `ap_1000` in 65535ths. Of a union it holds as well the part of each query (`part`,
`part_names`) and the same results in the gallery of that part alone (`part_first_hit`, `part_ap_r`, `part_ap_1000`).
Files from before precision and parts were kept lack those and are read as they are.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from reports import ReportError
from reports.safe_text import one_line
from reports.storage import paths

NAME = "queries.npz"
PRECISION = {"map@r": "ap_r", "map@1000": "ap_1000"}
"""Measures that average the precision of queries, and the arrays that hold it."""
FULL = 65535
"""What stands for a precision of 1: sixteen bits a query are kept."""


@dataclass(frozen=True)
class PartResults:
    """For each query of a union its part (a place in `names`) and its results in the gallery of that part alone."""

    part: np.ndarray
    names: np.ndarray
    first_hit: np.ndarray
    precision: dict[str, np.ndarray] = field(default_factory=dict)

    def arrays(self) -> dict[str, np.ndarray]:
        """What `queries.npz` holds of it."""
        return {"part": _smallest(self.part), "part_names": self.names, "part_first_hit": _smallest(self.first_hit),
                **_precision_arrays(self.precision, "part_")}


@dataclass(frozen=True)
class QueryResults:
    """For each query the rank of its first hit (0: none looked at), whether it counts, and its class."""

    first_hit: np.ndarray
    counted: np.ndarray
    labels: np.ndarray
    classes: np.ndarray | None = None
    """Names of the classes that `labels` count."""
    precision: dict[str, np.ndarray] = field(default_factory=dict)
    """Average precision of each query, by the measure (PRECISION) that averages it."""
    parts: PartResults | None = None

    def save(self, path: Path) -> None:
        """Writes them in the format of `queries.npz`."""
        more: dict[str, Any] = {} if self.classes is None else {"classes": self.classes}
        more |= _precision_arrays(self.precision) | ({} if self.parts is None else self.parts.arrays())
        with open(path, "wb") as file:
            np.savez_compressed(file, first_hit=_smallest(self.first_hit), counted=np.packbits(self.counted),
                                labels=self.labels.astype(np.int32), **more)


def load(path: Path | str) -> QueryResults:
    """The results in a `queries.npz`; a ReportError where an array is missing or does not fit the others."""
    try:
        with zipfile.ZipFile(io.BytesIO(paths.content(path))) as file:
            there = {name.removesuffix(".npy") for name in file.namelist()}
            labels, first_hit = array(file, "labels").astype(np.int64), array(file, "first_hit").astype(np.int64)
            counted = np.unpackbits(array(file, "counted"), count=len(labels)).astype(bool)
            scores = [{measure: array(file, start + name) / FULL for measure, name in PRECISION.items()
                       if start + name in there} for start in ("", "part_")]
            parts = PartResults(array(file, "part").astype(np.int64), array(file, "part_names"),
                                array(file, "part_first_hit").astype(np.int64), scores[1]) if "part" in there else None
            classes = array(file, "classes") if "classes" in there else None
            each = [first_hit, *scores[0].values()]
            each += [] if parts is None else [parts.part, parts.first_hit, *scores[1].values()]
            if labels.ndim != 1 or any(values.shape != labels.shape for values in each):
                raise ValueError(f"{len(labels)} labels, other results have {', '.join(str(len(v)) for v in each)}")
            return QueryResults(first_hit, counted, labels, classes, scores[0], parts)
    except Exception as error:  # zipfile and numpy answer damaged bytes with a dozen kinds of errors
        raise ReportError(f"{path} is damaged ({one_line(str(error), 200)})") from None


def _smallest(values: np.ndarray) -> np.ndarray:
    """The same numbers in the smallest integers that hold them."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))


def _precision_arrays(precision: dict[str, np.ndarray], start: str = "") -> dict[str, np.ndarray]:
    return {start + PRECISION[measure]: np.rint(FULL * values).astype(np.uint16)
            for measure, values in precision.items()}


def array(file: zipfile.ZipFile, name: str) -> np.ndarray:
    """An array of an open `queries.npz`."""
    if file.getinfo(f"{name}.npy").file_size > paths.LARGEST:  # a few bytes can unpack to more than the memory holds
        raise ValueError(f"{name} unpacks to more than {paths.LARGEST:,} bytes")
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

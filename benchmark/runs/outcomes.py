"""The outcome of every query in a few bytes, so that two methods can be compared query by query later."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.utils.files import whole


@dataclass(frozen=True)
class Outcomes:
    """For each query the rank of its first hit (0: none looked at), whether it counts, and its class."""

    first_hit: np.ndarray
    counted: np.ndarray
    labels: np.ndarray
    classes: np.ndarray | None = None
    """Names of the classes that `labels` count, by which outcomes of different rungs are matched."""

    def hits(self, k: int) -> np.ndarray:
        """Whether recall@k counts a hit, for the queries that count.

        >>> Outcomes(np.array([1, 3, 0]), np.array([True, True, True]), np.array([0, 0, 1])).hits(2)
        array([ True, False, False])
        """
        return ((self.first_hit > 0) & (self.first_hit <= k))[self.counted]


def save(path: Path, outcomes: Outcomes) -> None:
    """Writes `queries.npz`: first_hit in the smallest integers that hold it, counted as bits, labels as int32."""
    first = outcomes.first_hit.astype(np.min_scalar_type(int(outcomes.first_hit.max(initial=0))))
    with whole(path) as part, open(part, "wb") as file:
        named: dict[str, Any] = {} if outcomes.classes is None else {"classes": outcomes.classes}
        np.savez_compressed(file, first_hit=first, counted=np.packbits(outcomes.counted),
                            labels=outcomes.labels.astype(np.int32), **named)


def load(path: Path) -> Outcomes:
    """What `save` wrote."""
    with np.load(path) as file:
        first, labels = file["first_hit"].astype(np.int64), file["labels"].astype(np.int64)
        return Outcomes(first, np.unpackbits(file["counted"], count=len(first)).astype(bool), labels,
                        file["classes"] if "classes" in file.files else None)

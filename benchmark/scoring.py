"""Embeddings of a test side in, its scores out: single datasets, query and gallery, and unions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from benchmark import metrics, universal
from benchmark.task import Side


@dataclass(frozen=True)
class Score:
    """What a test side gives: means over queries, the same for each member of a union, and every query's outcome."""

    scores: dict[str, float]
    domains: dict[str, dict[str, float]]
    first_hit: np.ndarray
    counted: np.ndarray
    labels: np.ndarray


COUNTS = ("queries", "left_out")
"""Keys of `metrics.retrieval` that count and are no scores."""


def score(side: Side, embeddings: Tensor, domain_names: tuple[str, ...] = ()) -> Score:
    """Scores of the embeddings of one side; a union is scored over its unified gallery and per member."""
    result, labels = _search(side, embeddings, np.ones(len(side), dtype=bool))
    domains: dict[str, Any] = {}
    if side.domains is not None:
        for number, name in enumerate(domain_names):
            inside = side.domains == number
            if inside.any():
                domains[name] = _only_scores(_search(side, embeddings, inside)[0].scores)
    return Score(_only_scores(result.scores), domains, result.first_hit, result.counted, labels)


def _search(side: Side, embeddings: Tensor, inside: np.ndarray) -> tuple[metrics.Retrieval, np.ndarray]:
    raise NotImplementedError

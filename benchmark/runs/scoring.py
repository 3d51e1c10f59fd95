"""Embeddings of a test side in, its scores out: single datasets, query and gallery, and unions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from benchmark.data.task import Side
from benchmark.metrics import union
from benchmark.metrics.retrieval import outcomes
from reports.storage.queries import QueryResults

COUNTS = ("queries", "left_out")
"""Keys of `metrics.retrieval` that count and are no scores."""


@dataclass(frozen=True)
class Score:
    """What a test side gives: means over queries, the same for each member of a union, and every query's result."""

    scores: dict[str, float]
    domains: dict[str, dict[str, float]]
    queries: QueryResults


def score(side: Side, embeddings: Tensor, domain_names: tuple[str, ...] = (), own: Tensor | None = None) -> Score:
    """Scores of one side's embeddings. A union is scored over its unified gallery, and member by member.

    Labels of a side already differ between members, so the unified search needs nothing more. `own` are other
    embeddings for the scores member by member, where each has a model of its own.
    """
    whole = outcomes(embeddings, side.labels, roles=side.roles)
    queries = slice(None) if side.roles is None else side.roles != "gallery"
    members = {} if side.domains is None else union.members(embeddings if own is None else own, side.labels,
                                                             side.domains, domain_names, side.roles)
    return Score(_means(whole.scores), {name: _means(scores) for name, scores in members.items()},
                 QueryResults(whole.first_hit, whole.counted, side.labels[queries], np.array(side.classes)))


def _means(scores: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in scores.items() if name not in COUNTS}

"""Embeddings of a test side in, its scores out: single datasets, query and gallery, and unions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from benchmark.data.task import Side
from benchmark.metrics import union
from benchmark.metrics.retrieval import Retrieval, outcomes
from reports.storage.queries import PartResults, QueryResults

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
    queries = np.ones(len(side.labels), bool) if side.roles is None else side.roles != "gallery"
    domains, parts = {}, None
    if side.domains is not None:
        members = union.member_outcomes(embeddings if own is None else own, side.labels, side.domains, domain_names,
                                        side.roles)
        domains = {name: {} if one is None else _means(union.known(one.scores)) for name, one in members.items()}
        parts = _parts(members, side.domains[queries])
    results = QueryResults(whole.first_hit, whole.counted, side.labels[queries], np.array(side.classes),
                           whole.precision, parts)
    return Score(_means(whole.scores), domains, results)


def _parts(members: dict[str, Retrieval | None], domains: np.ndarray) -> PartResults:
    """The results of every query in the gallery of its own dataset, in the order of the queries."""
    first = np.zeros(len(domains), np.int64)
    precision: dict[str, np.ndarray] = {}
    for number, one in enumerate(members.values()):
        if one is not None:
            first[domains == number] = one.first_hit
            for measure, values in one.precision.items():
                precision.setdefault(measure, np.zeros(len(domains)))[domains == number] = values
    return PartResults(np.asarray(domains), np.array(list(members)), first, precision)


def _means(scores: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in scores.items() if name not in COUNTS}

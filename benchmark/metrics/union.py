"""Measures of a union of datasets: over its unified gallery, per member dataset, and their harmonic mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn.functional import normalize

from benchmark.metrics.retrieval import Retrieval, as_embeddings, as_labels, outcomes, retrieval, same_length, unit
from benchmark.utils.errors import UserError
from reports.aggregate import harmonic_mean


def evaluate(embeddings: Any, labels: Any, domains: Any, domain_names: Sequence[str], roles: Any | None = None,
             **options: Any) -> dict[str, Any]:
    """{'unified': scores, 'domains': {name: scores}, 'harmonic': scores} of the test images of a union.

    `domains[i]` is the position of image i's dataset in `domain_names`. Unified: every query searches the images of
    all datasets, and is right only with its own class of its own dataset (a class of the union is the pair of both;
    equal labels of two datasets never match). Per dataset: queries and gallery of that dataset alone. `roles`
    ('query', 'gallery' or '' for both) are respected in either. Harmonic: of the datasets' scores, for every measure
    that all of them have. Further options go to `retrieval`.

    >>> points, labels = np.eye(4)[[0, 0, 1, 1]], [7, 7, 7, 7]
    >>> evaluate(points, labels, [0, 0, 1, 1], ["birds", "cars"])["harmonic"]["recall@1"]
    1.0
    """
    x, y, member = as_embeddings(embeddings), as_labels(labels), as_labels(domains)
    by_dataset = members(x, y, member, domain_names, roles, **options)
    return {"unified": retrieval(x, pairs(y, member), roles=roles, **options), "domains": by_dataset,
            "harmonic": harmonic(by_dataset)}


def members(embeddings: Any, labels: Any, domains: Any, domain_names: Sequence[str], roles: Any | None = None,
            **options: Any) -> dict[str, dict[str, float]]:
    """The scores of each dataset of a union on its own queries and gallery, as `evaluate` has them.

    Where no query of a dataset has anything to find, only its counts are given; of one without images nothing.
    """
    return {name: {} if one is None else known(one.scores) for name, one in
            member_outcomes(embeddings, labels, domains, domain_names, roles, **options).items()}


def known(scores: dict[str, float]) -> dict[str, float]:
    """The measures that are not NaN."""
    return {measure: value for measure, value in scores.items() if not math.isnan(value)}


def member_outcomes(embeddings: Any, labels: Any, domains: Any, domain_names: Sequence[str], roles: Any | None = None,
                    **options: Any) -> dict[str, Retrieval | None]:
    """The outcome of every query of each dataset in its own gallery; None for a dataset without images."""
    x, y, member = as_embeddings(embeddings), as_labels(labels), as_labels(domains)
    same_length(x, y)
    same_length(x, member)
    if len(member) and not 0 <= member.min() <= member.max() < len(domain_names):
        raise UserError(f"domains run from {member.min()} to {member.max()}, but there are {len(domain_names)} names; "
                        "number them from 0 and name each")
    by_dataset: dict[str, Retrieval | None] = {}
    for number, name in enumerate(domain_names):
        inside = np.flatnonzero(member == number)
        by_dataset[name] = None
        if len(inside):
            own = None if roles is None else np.asarray(roles)[inside]
            by_dataset[name] = outcomes(x[inside], y[inside], roles=own, **options)
    return by_dataset


def pairs(labels: np.ndarray, domains: np.ndarray) -> np.ndarray:
    """One code for each (dataset, class).

    >>> pairs(np.array([3, 3, 5]), np.array([0, 1, 1]))
    array([0, 2, 3])
    """
    names, codes = np.unique(labels, return_inverse=True)
    return domains.astype(np.int64) * len(names) + codes


def harmonic(domains: dict[str, dict[str, float]]) -> dict[str, float]:
    """The harmonic mean over datasets of every measure; absent where a dataset lacks it, as it had no query."""
    shared = set.intersection(*(set(scores) for scores in domains.values())) if domains else set()
    return {name: harmonic_mean(scores[name] for scores in domains.values())
            for name in sorted(shared - {"queries", "left_out"})}


def ensemble(embeddings: Sequence[Any], released: bool = False) -> Tensor:
    """The mean of several models' normalised embeddings of the same images, normalised again.

        phi(x) = normalise(1/M sum_m normalise(phi_m(x)))

    `released` leaves the outer normalisation out, as the released code of UML does; it then matters that the search
    is by inner product (`retrieval(..., similarity='dot')`).
    """
    members = [unit(as_embeddings(member)) for member in embeddings]
    shapes = {tuple(member.shape) for member in members}
    if len(shapes) != 1:
        raise UserError(f"an ensemble needs embeddings of one shape, not {', '.join(map(str, sorted(shapes)))}")
    mean = sum(members[1:], start=members[0]) / len(members)
    return mean if released else normalize(mean)

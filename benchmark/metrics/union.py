"""Measures of a union of datasets: of each member in its own gallery, their harmonic mean, an ensemble of models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn.functional import normalize

from benchmark.metrics.retrieval import Retrieval, as_embeddings, as_labels, outcomes, same_length, unit
from benchmark.utils.errors import UserError
from reports.aggregate import harmonic_mean


def known(scores: dict[str, float]) -> dict[str, float]:
    """The measures that are not NaN."""
    return {measure: value for measure, value in scores.items() if not math.isnan(value)}


def member_outcomes(embeddings: Any, labels: Any, domains: Any, domain_names: Sequence[str],
                    roles: Any | None = None) -> dict[str, Retrieval | None]:
    """The outcome of every query of each dataset in its own gallery; None for a dataset without images.

    `domains[i]` is the position of image i's dataset in `domain_names`; `roles` are as in `outcomes`.
    """
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
            by_dataset[name] = outcomes(x[inside], y[inside], roles=own)
    return by_dataset


def harmonic(domains: dict[str, dict[str, float]]) -> dict[str, float]:
    """The harmonic mean over datasets of every measure; absent where a dataset lacks it, as it had no query.

    >>> harmonic({"birds": {"recall@1": 0.5, "map@r": 0.25}, "cars": {"recall@1": 0.5}})
    {'recall@1': 0.5}
    """
    shared = set.intersection(*(set(scores) for scores in domains.values())) if domains else set()
    return {name: harmonic_mean(scores[name] for scores in domains.values()) for name in sorted(shared)}


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

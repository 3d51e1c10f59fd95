"""Measures of a union: members alone, the unified gallery, and the ensemble."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmark.data.task import Side
from benchmark.datasets.index import DatasetIndex
from benchmark.datasets.union import unite_indexes
from benchmark.metrics.retrieval import outcomes, retrieval
from benchmark.metrics.union import ensemble, harmonic, member_outcomes
from benchmark.runs.scoring import Score, score
from benchmark.utils.errors import UserError


def union(seed=0, n=240, d=6):
    """Three datasets whose labels all run from 0, the last with queries and gallery apart."""
    random = np.random.default_rng(seed)
    domains = random.integers(0, 3, n)
    labels = random.integers(0, 7, n)
    x = random.normal(size=(3, 7, d))[domains, labels] + random.normal(size=(n, d))
    roles = np.where(domains == 2, random.choice(["query", "gallery"], n), "")
    return x, labels, domains, roles


def side_of(labels, domains, roles=None):
    """A side's labels count the classes of all datasets, those of two datasets apart."""
    codes = 100 * np.asarray(domains) + np.asarray(labels)
    names, labels = np.unique(codes, return_inverse=True)
    return Side(np.arange(len(codes)), labels, tuple(map(str, names)), roles, np.asarray(domains))


def scored(x, labels, domains, names, roles=None):
    """The score of a union's test side, and the harmonic mean over its datasets."""
    found = score(side_of(labels, domains, roles), torch.from_numpy(x), tuple(names))
    return found, harmonic(found.domains)


def counts(x, labels, domains, names, roles=None):
    """(queries that count, queries left out) of the union as a whole, and of each dataset."""
    side, x = side_of(labels, domains, roles), torch.from_numpy(x)
    whole = outcomes(x, side.labels, roles=side.roles)
    parts = member_outcomes(x, side.labels, side.domains, names, side.roles)
    found = score(side, x, tuple(names)).queries.counted
    assert (whole.scores["queries"], whole.scores["left_out"]) == (found.sum(), (~found).sum())
    return [(one.scores["queries"], one.scores["left_out"]) for one in (whole, *parts.values())]


def by_loops(x, labels, domains, roles, inside):
    """Recall@1 and MAP@R where a hit needs the same dataset and the same class."""
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    hits, precision = [], []
    for i in np.flatnonzero(inside & (roles != "gallery")):
        gallery = [j for j in np.flatnonzero(inside & (roles != "query")) if j != i]
        order = sorted(gallery, key=lambda j: -(x[i] @ x[j]))
        right = [labels[j] == labels[i] and domains[j] == domains[i] for j in order]
        relevant = sum(right)
        if relevant:
            hits.append(right[0])
            precision.append(sum(sum(right[:r + 1]) / (r + 1) for r in range(relevant) if right[r]) / relevant)
    return np.mean(hits), np.mean(precision)


def test_unified_and_member_scores_from_loops():
    for seed in (0, 7):
        x, labels, domains, roles = union(seed)
        names = ["birds", "cars", "shop"]
        measured, mean = scored(x, labels, domains, names, roles)
        parts = [(measured.scores, np.ones(len(x), dtype=bool))]
        parts += [(measured.domains[name], domains == number) for number, name in enumerate(names)]
        for scores, inside in parts:
            recall, precision = by_loops(x, labels, domains, roles, inside)
            assert scores["recall@1"] == pytest.approx(recall)
            assert scores["map@r"] == pytest.approx(precision)
            assert "queries" not in scores
        members = [measured.domains[name]["recall@1"] for name in names]
        assert mean["recall@1"] == pytest.approx(3 / sum(1 / value for value in members))
        assert "queries" not in mean
        (unified, _), *own = counts(x, labels, domains, names, roles)
        assert unified == sum(queries for queries, _ in own)


def test_the_results_of_queries_are_those_of_the_side():
    x, labels, domains, roles = union(seed=7)
    side = side_of(labels, domains, roles)
    assert side.labels.tolist() == (labels + 7 * domains).tolist()
    measured, _ = scored(x, labels, domains, ["birds", "cars", "shop"], roles)
    assert len(measured.queries.first_hit) == (roles != "gallery").sum()
    assert measured.queries.labels.tolist() == side.labels[roles != "gallery"].tolist()
    hits = (measured.queries.first_hit == 1)[measured.queries.counted]
    assert hits.mean() == pytest.approx(measured.scores["recall@1"])
    alone = score(Side(np.arange(len(x)), labels, tuple(map(str, range(7)))), torch.from_numpy(x))
    assert alone.domains == {}


def test_a_larger_gallery_never_helps_recall():
    for seed in range(5):
        x, labels, domains, roles = union(seed)
        measured, _ = scored(x, labels, domains, ["a", "b", "c"], roles)
        queries = [counted for counted, _ in counts(x, labels, domains, ["a", "b", "c"], roles)[1:]]
        alone = np.average([scores["recall@1"] for scores in measured.domains.values()], weights=queries)
        assert measured.scores["recall@1"] <= alone + 1e-12


def test_equal_labels_of_two_datasets_never_match():
    x = np.repeat(np.eye(2), 2, axis=0)[[0, 2, 1, 3]]  # nearest neighbour is of the other dataset, same label
    assert counts(x, [4, 5, 4, 5], [0, 0, 1, 1], ["a", "b"])[0] == (0, 4)
    measured, _ = scored(np.concatenate([x, x]), [4, 5] * 4, [0, 0, 1, 1, 0, 0, 1, 1], ["a", "b"])
    assert measured.scores["recall@1"] == 0.25  # all four at a point find its first image, right for one of them
    assert measured.domains["a"]["recall@1"] == 1


def test_classes_of_one_name_in_two_datasets_never_match():
    """From the index of each dataset on."""
    def score_of(labels: list[int], x: np.ndarray) -> Score:
        alone = [DatasetIndex(name, tuple(f"{i}.jpg" for i in range(len(labels))), ("zero", "four", "five"),
                              np.array(labels), ("zero",), ("four", "five")) for name in "ab"]
        index = unite_indexes("a-b", alone)
        side = Side.of(index, index.test_classes)
        assert len(side) == len(x)
        return score(side, torch.from_numpy(x), index.domain_names)

    x = np.eye(2)
    assert not score_of([1, 2], x[[0, 1, 0, 1]]).queries.counted.any()
    measured = score_of([1, 2, 1, 2], x[[0, 1, 0, 1, 0, 1, 0, 1]])
    assert measured.scores["recall@1"] == 0.5  # at a point the images of the first dataset find each other
    assert [scores["recall@1"] for scores in measured.domains.values()] == [1, 1]


def test_harmonic_mean_is_zero_or_absent_where_it_must_be():
    x = np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1], [-1, 0], [-1, 0.1], [-1, 0.01], [-1, 0.11]])
    measured, mean = scored(x, [0, 0, 1, 1, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1, 1, 1], ["a", "b"])
    assert measured.domains["b"]["recall@1"] == mean["recall@1"] == 0
    lonely = (x, [0, 0, 1, 1, 0, 1, 2, 3], [0, 0, 0, 0, 1, 1, 1, 1], ["a", "b"])
    measured, mean = scored(*lonely)
    assert mean == {}
    assert measured.domains["b"] == {}
    assert counts(*lonely)[2] == (0, 4)


def test_a_dataset_of_queries_alone_has_no_scores():
    x, labels, domains, _ = union()
    roles = np.where(domains == 2, "query", "")
    measured, mean = scored(x, labels, domains, ["birds", "cars", "shop"], roles)
    lone = int((domains == 2).sum())
    assert measured.domains["shop"] == {}
    assert mean == {}
    unified, *_, shop = counts(x, labels, domains, ["birds", "cars", "shop"], roles)
    assert shop == (0, lone)
    assert unified[1] == lone
    recall, precision = by_loops(x, labels, domains, roles, np.ones(len(x), dtype=bool))
    assert (measured.scores["recall@1"], measured.scores["map@r"]) == pytest.approx((recall, precision))


def test_wrong_domains_are_told():
    with pytest.raises(UserError, match="there are 1 names"):
        scored(np.eye(3), [0, 0, 1], [0, 0, 1], ["a"])


def test_ensemble_is_the_mean_of_directions():
    random = np.random.default_rng(0)
    first, second = random.normal(size=(2, 30, 5))
    unit = [m / np.linalg.norm(m, axis=1, keepdims=True) for m in (3 * first, second)]
    mean = (unit[0] + unit[1]) / 2
    np.testing.assert_allclose(ensemble([3 * first, second], released=True), mean, atol=1e-6)
    np.testing.assert_allclose(ensemble([3 * first, torch.from_numpy(second)]),
                               mean / np.linalg.norm(mean, axis=1, keepdims=True), atol=1e-6)
    with pytest.raises(UserError, match="one shape"):
        ensemble([first, second[:, :3]])


def test_released_ensemble_searches_by_inner_product():
    long, short = np.array([[1.0, 0.0]]), np.array([[0.6, 0.3], [0.2, 0.0]])
    by_angle = retrieval(long, [0], gallery=short, gallery_labels=[1, 0], ks=(1,))
    by_product = retrieval(long, [0], gallery=short, gallery_labels=[1, 0], ks=(1,), similarity="dot")
    assert (by_angle["recall@1"], by_product["recall@1"]) == (1, 0)


def test_a_dataset_without_images_leaves_no_harmonic_mean() -> None:
    points, labels, domains = np.eye(4)[[0, 0, 1, 1]], [7, 7, 7, 7], [0, 0, 1, 1]
    measured, mean = scored(points, labels, domains, ["birds", "cars", "none"])
    assert measured.domains["none"] == {}
    assert mean == {}
    assert scored(points, labels, domains, ["birds", "cars"])[1]["recall@1"] == 1

"""Measures of a union: members alone, the unified gallery, and the ensemble."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmark.data.task import Side
from benchmark.metrics.retrieval import retrieval
from benchmark.metrics.union import ensemble, evaluate
from benchmark.runs.scoring import score
from benchmark.utils.errors import UserError


def union(seed=0, n=240, d=6):
    """Three datasets whose labels all run from 0, the last with queries and gallery apart."""
    random = np.random.default_rng(seed)
    domains = random.integers(0, 3, n)
    labels = random.integers(0, 7, n)
    x = random.normal(size=(3, 7, d))[domains, labels] + random.normal(size=(n, d))
    roles = np.where(domains == 2, random.choice(["query", "gallery"], n), "")
    return x, labels, domains, roles


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
    x, labels, domains, roles = union()
    names = ["birds", "cars", "shop"]
    measured = evaluate(x, labels, domains, names, roles)
    parts = [(measured["unified"], np.ones(len(x), dtype=bool))]
    parts += [(measured["domains"][name], domains == number) for number, name in enumerate(names)]
    for scores, inside in parts:
        recall, precision = by_loops(x, labels, domains, roles, inside)
        assert scores["recall@1"] == pytest.approx(recall)
        assert scores["map@r"] == pytest.approx(precision)
    members = [measured["domains"][name]["recall@1"] for name in names]
    assert measured["harmonic"]["recall@1"] == pytest.approx(3 / sum(1 / value for value in members))
    assert measured["unified"]["queries"] == sum(scores["queries"] for scores in measured["domains"].values())
    assert "queries" not in measured["harmonic"]


def test_the_side_of_a_split_is_scored_the_same():
    x, labels, domains, roles = union(seed=7)
    codes = labels + 7 * domains  # a side's labels tell the classes of different datasets apart
    side = Side(np.arange(len(x)), codes, tuple(map(str, range(21))), roles, domains)
    measured = score(side, torch.from_numpy(x), ("birds", "cars", "shop"))
    for scores, inside in [(measured.scores, np.ones(len(x), dtype=bool))] + [
            (measured.domains[name], domains == number) for number, name in enumerate(("birds", "cars", "shop"))]:
        recall, precision = by_loops(x, labels, domains, roles, inside)
        assert scores["recall@1"] == pytest.approx(recall)
        assert scores["map@r"] == pytest.approx(precision)
        assert "queries" not in scores
    assert len(measured.queries.first_hit) == (roles != "gallery").sum()
    assert measured.queries.labels.tolist() == codes[roles != "gallery"].tolist()
    hits = (measured.queries.first_hit == 1)[measured.queries.counted]
    assert hits.mean() == pytest.approx(measured.scores["recall@1"])
    alone = score(Side(np.arange(len(x)), labels, tuple(map(str, range(7)))), torch.from_numpy(x))
    assert alone.domains == {}


def test_a_larger_gallery_never_helps_recall():
    for seed in range(5):
        x, labels, domains, roles = union(seed)
        measured = evaluate(x, labels, domains, ["a", "b", "c"], roles)
        queries = [scores["queries"] for scores in measured["domains"].values()]
        alone = np.average([scores["recall@1"] for scores in measured["domains"].values()], weights=queries)
        assert measured["unified"]["recall@1"] <= alone + 1e-12


def test_equal_labels_of_two_datasets_never_match():
    x = np.repeat(np.eye(2), 2, axis=0)[[0, 2, 1, 3]]  # nearest neighbour is of the other dataset, same label
    measured = evaluate(x, [4, 5, 4, 5], [0, 0, 1, 1], ["a", "b"])
    assert measured["unified"]["queries"] == 0
    measured = evaluate(np.concatenate([x, x]), [4, 5] * 4, [0, 0, 1, 1, 0, 0, 1, 1], ["a", "b"])
    assert measured["unified"]["recall@1"] == 0.25  # all four at a point find its first image, right for one of them
    assert measured["domains"]["a"]["recall@1"] == 1


def test_harmonic_mean_is_zero_or_absent_where_it_must_be():
    x = np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1], [-1, 0], [-1, 0.1], [-1, 0.01], [-1, 0.11]])
    measured = evaluate(x, [0, 0, 1, 1, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1, 1, 1], ["a", "b"], ks=(1,))
    assert measured["domains"]["b"]["recall@1"] == measured["harmonic"]["recall@1"] == 0
    lonely = evaluate(x, [0, 0, 1, 1, 0, 1, 2, 3], [0, 0, 0, 0, 1, 1, 1, 1], ["a", "b"])
    assert lonely["harmonic"] == {}
    assert lonely["domains"]["b"] == {"queries": 0, "left_out": 4}


def test_a_dataset_of_queries_alone_has_no_scores():
    x, labels, domains, _ = union()
    roles = np.where(domains == 2, "query", "")
    measured = evaluate(x, labels, domains, ["birds", "cars", "shop"], roles)
    lone = int((domains == 2).sum())
    assert measured["domains"]["shop"] == {"queries": 0, "left_out": lone}
    assert measured["harmonic"] == {}
    assert measured["unified"]["left_out"] == lone
    recall, precision = by_loops(x, labels, domains, roles, np.ones(len(x), dtype=bool))
    assert (measured["unified"]["recall@1"], measured["unified"]["map@r"]) == pytest.approx((recall, precision))


def test_wrong_domains_are_told():
    with pytest.raises(UserError, match="there are 1 names"):
        evaluate(np.eye(3), [0, 0, 1], [0, 0, 1], ["a"])


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
    measured = evaluate(np.eye(4)[[0, 0, 1, 1]], [7, 7, 7, 7], [0, 0, 1, 1], ["birds", "cars", "none"])
    assert measured["domains"]["none"] == {}
    assert measured["harmonic"] == {}

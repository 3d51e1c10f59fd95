"""The shape of the embedding space and its clusters against loops, numpy, scipy and scikit-learn."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score, pair_confusion_matrix

from benchmark.metrics import clustering
from benchmark.metrics.clustering import f1, kmeans, nmi, nmi_f1
from benchmark.metrics.structure import decay, singular_values, structure, with_spectra


def clouds(n=150, classes=12, d=10, seed=0):
    random = np.random.default_rng(seed)
    y = random.integers(0, classes, n)
    return random.normal(size=(classes, d))[y] + 0.5 * random.normal(size=(n, d)), y


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def test_distances_from_the_formulas():
    x, y = clouds()
    y[0] = 99  # a class of one image has no pair
    measured, x = structure(x, y), unit(x)
    pairs = [np.linalg.norm(x[i] - x[j]) for i, j in itertools.permutations(range(len(x)), 2) if y[i] == y[j]]
    means = [x[y == c].mean(axis=0) for c in np.unique(y)]
    between = [np.linalg.norm(a - b) for a, b in itertools.permutations(means, 2)]
    assert measured["pi_intra"] == pytest.approx(np.mean(pairs), abs=1e-6)
    assert measured["pi_inter"] == pytest.approx(np.mean(between), abs=1e-6)
    assert measured["density"] == pytest.approx(np.mean(pairs) / np.mean(between), abs=1e-6)


def test_released_distances_are_cosine_and_averaged_over_classes():
    x, y = clouds(seed=1)
    measured, x = structure(x, y), unit(x)
    classes = [np.mean([1 - x[i] @ x[j] for i, j in itertools.permutations(np.flatnonzero(y == c), 2)])
               for c in np.unique(y)]
    directions = [unit(x[y == c].mean(axis=0)) for c in np.unique(y)]
    between = np.mean([1 - a @ b for a, b in itertools.permutations(directions, 2)])
    assert measured["pi_intra_released"] == pytest.approx(np.mean(classes), abs=1e-6)
    assert measured["pi_inter_released"] == pytest.approx(between, abs=1e-6)
    assert measured["density_released"] == pytest.approx(np.mean(classes) / between, abs=1e-6)


def released_rho(x, k):
    """The released code's words: singular values, drop the first |k| - 1, normalise, scipy's entropy."""
    s = np.linalg.svd(x, compute_uv=False)[abs(k) - 1:]
    s = s / s.sum()
    uniform = np.ones(len(s)) / len(s)
    return entropy(uniform, s) if k > 0 else entropy(s, uniform)


@pytest.mark.parametrize(("n", "d"), [(150, 12), (20, 40), (9000, 11)])
def test_spectral_decay(n, d):
    x, y = clouds(n, d=d, seed=2)
    measured, x = structure(x, y), unit(x)
    assert measured["rho"] == pytest.approx(released_rho(x, 2), rel=1e-5)
    for k in (-1, 1, 2, 10):
        assert measured[f"rho_released@{k}"] == pytest.approx(released_rho(x, k), rel=1e-5), k
    large = [x[y == c] for c in np.unique(y) if (y == c).sum() > 2]
    assert measured["rho_class"] == pytest.approx(np.mean([released_rho(part, 2) for part in large]), rel=1e-4)


def test_spectra_are_those_of_the_whole_matrix_and_of_classes():
    """By another road: numpy's SVD of the matrix and of each class, at every rank that is kept."""
    x, y = clouds(400, 5, 60, seed=3)
    y[:4] = [90, 90, 91, 91]  # classes of two images have no spectrum of their own
    measured = with_spectra(x, y)
    assert {k: v for k, v in measured.items() if "spectrum" not in k} == structure(x, y)
    x = unit(x)
    whole = np.linalg.svd(x, compute_uv=False)
    for rank, value in measured["spectrum"]:
        assert value == pytest.approx(whole[rank - 1] / whole.sum(), rel=1e-3)
    own = [np.linalg.svd(x[y == c], compute_uv=False) for c in np.unique(y) if (y == c).sum() > 2]
    for rank, value in measured["spectrum_class"]:
        assert value == pytest.approx(np.mean([s[rank - 1] / s.sum() for s in own if len(s) >= rank]), rel=1e-3)
    ranks = [rank for rank, _ in measured["spectrum"]]
    assert (ranks[0], ranks[-1]) == (1, 60)
    assert len(ranks) <= 40
    assert len(json.dumps(measured["spectrum"])) < 1000
    assert with_spectra(np.eye(4), np.arange(4))["spectrum_class"] == []


def test_a_collapsed_space_decays_more_than_a_full_one():
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 8)
    full, flat = random.normal(size=(80, 16)), random.normal(size=(80, 2)) @ random.normal(size=(2, 16))
    assert structure(full, y)["rho"] < 0.1 < 1 < structure(flat, y)["rho"] < math.inf
    point = structure(np.ones((80, 16)), y)
    assert point["pi_intra"] == point["pi_inter"] == 0
    assert math.isnan(point["density"])


def test_what_does_not_exist_is_nan():
    lone = structure(np.eye(5), np.arange(5))
    assert math.isnan(lone["pi_intra"])
    assert lone["pi_inter"] == pytest.approx(math.sqrt(2))
    one = structure(np.eye(5), np.zeros(5, int))
    assert math.isnan(one["pi_inter"])
    assert one["pi_intra"] == pytest.approx(math.sqrt(2))
    assert math.isnan(decay(np.ones(2), 10))


def test_order_scale_and_rotation_change_nothing():
    x, y = clouds(seed=4)
    random = np.random.default_rng(1)
    order, rotation = random.permutation(len(x)), np.linalg.qr(random.normal(size=(10, 10)))[0]
    base = structure(x, y)
    assert structure(x[order], y[order]) == pytest.approx(base, abs=1e-6, nan_ok=True)
    assert structure(5 * x @ rotation, torch.tensor(y)) == pytest.approx(base, abs=1e-5, nan_ok=True)


@pytest.mark.parametrize(("factor", "kind"), [(1e20, np.float32), (1e-16, np.float32), (1e30, np.float32),
                                              (1e-30, np.float32), (1e200, np.float64), (1e-200, np.float64)])
def test_large_and_small_numbers_change_nothing(factor, kind):
    x, y = clouds(seed=6)
    other = (x * factor).astype(kind)
    assert structure(other, y) == pytest.approx(structure(x, y), abs=1e-5, nan_ok=True)
    measured = structure(other, y)["pi_intra"]
    pairs = [np.linalg.norm(unit(x)[i] - unit(x)[j]) for i, j in itertools.permutations(range(60), 2) if y[i] == y[j]]
    assert structure(other[:60], y[:60])["pi_intra"] == pytest.approx(np.mean(pairs), abs=1e-6) != measured
    assert nmi_f1(np.eye(8)[y[:60] % 8] * factor, y[:60] % 8, seed=0) == {"nmi": pytest.approx(1), "f1": 1}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dead", [slice(0, 4), slice(None)])
def test_zero_vectors_have_no_spectrum(dead):
    """As a network gives them whose units are all off: 0 / 0, of which nothing is warned, and nothing kept."""
    x, y = np.random.default_rng(0).normal(size=(12, 8)), np.repeat([0, 1, 2], 4)
    x[dead] = 0
    measured = with_spectra(x, y)
    assert measured["spectrum_class"] == []
    assert math.isnan(measured["rho_class"])
    whole = not x.any()
    assert math.isnan(measured["rho"]) == whole
    expected = [] if whole else np.linalg.svd(unit(x[4:]), compute_uv=False)
    assert [value for _, value in measured["spectrum"]] == pytest.approx(
        [] if whole else expected / expected.sum(), rel=1e-3, abs=1e-6)
    assert json.dumps(measured)


def test_singular_values_of_many_matrices_at_once():
    x = torch.randn(4, 5, 7, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(singular_values(x), np.linalg.svd(x.numpy(), compute_uv=False), rtol=1e-4)


codes = st.integers(2, 40).flatmap(lambda n: st.tuples(*[st.lists(st.integers(0, 6), min_size=n, max_size=n)] * 2))


@settings(max_examples=50)
@given(codes)
def test_nmi_and_f1_against_scikit_learn(case):
    classes, clusters = map(np.array, case)
    assert nmi(classes, clusters) == pytest.approx(normalized_mutual_info_score(classes, clusters), abs=1e-9)
    (_, apart), (split, both) = pair_confusion_matrix(classes, clusters)
    expected = 2 * both / (2 * both + apart + split) if both + apart + split else 1.0
    assert f1(classes, clusters) == pytest.approx(expected)


def test_clusters_of_separate_clouds_are_the_classes():
    y = np.repeat(np.arange(2), 30)
    x = np.eye(8)[y] + 0.01 * np.random.default_rng(0).normal(size=(60, 8))
    assert nmi_f1(x, y, seed=3) == {"nmi": 1.0, "f1": 1.0}
    noise, labels = clouds(seed=5)
    assert nmi_f1(noise, labels, seed=3) == nmi_f1(torch.from_numpy(noise), labels, seed=3)


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("n", "k", "d", "repeated"), [(300, 7, 5, 0), (500, 60, 12, 0), (500, 60, 12, 9)])
def test_kmeans_is_scikit_learns_from_the_same_start(n, k, d, repeated, device, monkeypatch):
    points, y = clouds(n, k, d, seed=k)
    order = np.random.default_rng(k).permutation(n)
    points[order[:repeated]] = points[order[0]]  # equal centres: all but the first of them stay without points
    monkeypatch.setattr(torch, "randperm", lambda size, generator: torch.from_numpy(order))
    ours = kmeans(torch.from_numpy(points).to(device), k, seed=0).cpu().numpy()
    theirs = KMeans(k, init=points[order[:k]], n_init=1, max_iter=clustering.ITERATIONS, tol=0).fit(points)
    assert nmi(y, ours) == pytest.approx(normalized_mutual_info_score(y, theirs.labels_))
    assert nmi(ours, theirs.labels_) == pytest.approx(1)  # the same clusters, whatever their numbers


def test_every_iteration_is_run(monkeypatch):
    points = np.random.default_rng(0).uniform(size=(3000, 1))
    monkeypatch.setattr(torch, "randperm", lambda size, generator: torch.arange(size))
    centres, labels = points[:10], []
    for _ in range(clustering.ITERATIONS + 1):
        labels.append(np.abs(points - centres.T).argmin(axis=1))
        centres = np.stack([points[labels[-1] == c].mean(axis=0) for c in range(10)])
    np.testing.assert_array_equal(kmeans(torch.from_numpy(points), 10, seed=0), labels[-1])
    assert (labels[-1] != labels[-2]).any(), "these points show no early stop"


def test_kmeans_costs_no_more_than_that_of_faiss():
    faiss = pytest.importorskip("faiss")
    data = unit(clouds(600, 30, 8, seed=9)[0]).astype(np.float32)

    def inertia(clusters):
        return sum(((part - part.mean(axis=0))**2).sum() for c in range(30) if len(part := data[clusters == c]))

    theirs = []
    for seed in range(10):
        model = faiss.Kmeans(8, 30, niter=clustering.ITERATIONS, seed=seed, min_points_per_centroid=1)
        model.train(data)
        theirs.append(inertia(model.assign(data)[1]))
    ours = [inertia(kmeans(torch.from_numpy(data), 30, seed).numpy()) for seed in range(10)]
    assert min(theirs) < np.mean(ours) < max(theirs) * 1.05


def test_a_seed_gives_one_clustering():
    points = torch.from_numpy(clouds(600, 30, 8, seed=9)[0])
    ours, again, other = (kmeans(points, 30, seed) for seed in (1, 1, 2))
    assert torch.equal(ours, again)
    assert not torch.equal(ours, other)


def differently_rounded(monkeypatch):
    """Another device: products summed in another order, in float32 as in float64."""
    straight = torch.addmm

    def halves(half, left, right, beta):
        middle = left.shape[1] // 2
        return straight(straight(half, left[:, middle:], right[middle:], beta=beta), left[:, :middle], right[:middle])

    monkeypatch.setattr(torch, "addmm", halves)


@pytest.mark.parametrize("kind", ["overlapping", "repeated", "on a grid", "constant"])
def test_rounding_changes_no_cluster(kind, monkeypatch):
    random = np.random.default_rng(3)
    points = unit(clouds(900, 40, 16, seed=3)[0])
    if kind == "repeated":  # the same image three times, anywhere
        points = np.concatenate([points[:300]] * 3)[random.permutation(900)]
    elif kind == "on a grid":  # points half way between two centres
        points = random.integers(-1, 2, (900, 16)) / 3
    elif kind == "constant":
        points = np.repeat(points[:1], 900, axis=0)
    points = torch.from_numpy(points)
    expected = kmeans(points, 40, seed=0)
    differently_rounded(monkeypatch)
    assert torch.equal(kmeans(points, 40, seed=0), expected)
    monkeypatch.setattr(clustering, "_BLOCK", 1000)
    assert torch.equal(kmeans(points, 40, seed=0), expected)


@gpu
def test_a_gpu_gives_the_clusters_of_the_cpu():
    x, y = clouds(4000, 200, 64, seed=4)
    assert nmi_f1(torch.from_numpy(x).cuda(), y, seed=0) == nmi_f1(x, y, seed=0)
    points = torch.from_numpy(unit(x))
    assert torch.equal(kmeans(points.cuda(), 200, seed=0).cpu(), kmeans(points, 200, seed=0))


def test_an_empty_cluster_takes_the_farthest_point(monkeypatch):
    monkeypatch.setattr(torch, "randperm", lambda size, generator: torch.arange(size))
    points = torch.tensor([[0.0], [0.0], [0.0], [5.0], [11.0]])
    assert len(kmeans(points, 3, seed=0).unique()) == 3


def test_clusters_of_edge_cases():
    random = np.random.default_rng(0)
    assert nmi_f1(random.normal(size=(9, 3)), np.zeros(9, int), seed=0) == {"nmi": 1.0, "f1": 1.0}
    alone = nmi_f1(random.normal(size=(9, 3)), np.arange(9), seed=0)
    assert alone == {"nmi": pytest.approx(1.0), "f1": 1.0}


def test_a_constant_embedding_is_one_cluster():
    y = np.repeat(np.arange(6), 5)
    # all pairs are in the cluster, those of one class are right: precision (5 - 1) / (30 - 1), recall 1
    assert nmi_f1(np.ones((30, 4)), y, seed=0) == {"nmi": pytest.approx(0, abs=1e-12),
                                                   "f1": pytest.approx(2 * (4 / 29) / (4 / 29 + 1))}


def test_a_seed_may_be_long():
    points = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(kmeans(points, 3, 2**63 + 5), kmeans(points, 3, 5))

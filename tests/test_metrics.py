"""Retrieval measures against loops over float64 similarities and against pytorch-metric-learning."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

from benchmark.metrics.retrieval import KS, outcomes, retrieval, unit
from benchmark.utils.errors import UserError

MEASURES = ("map@1000", "map@1000_released", "map@r", "map@c_released", "r-precision")


def by_loops(x, y, g=None, z=None, own=None, ks=(1, 2, 4, 8)):
    """Every measure from its definition, query by query."""
    x = np.asarray(x, dtype=np.float64)
    if g is None:
        g, z, own = x, y, list(range(len(x)))
    g = np.asarray(g, dtype=np.float64)
    sums, counted, left_out = dict.fromkeys([*MEASURES, *(f"recall@{k}" for k in ks)], 0.0), 0, 0
    for i in range(len(x)):
        similarity = g @ x[i]
        order = [j for j in sorted(range(len(g)), key=lambda j: (-similarity[j], j)) if own is None or j != own[i]]
        relevant = sum(z[j] == y[i] for j in order)
        f = sum(label == y[i] for label in z)
        if relevant == 0:
            left_out += 1
            continue
        counted += 1
        hits = [z[j] == y[i] for j in order]

        def summed(limit, hits=hits):
            return sum(sum(hits[:r + 1]) / (r + 1) for r in range(min(limit, len(hits))) if hits[r])

        sums["map@1000"] += summed(1000) / min(relevant, 1000)
        sums["map@1000_released"] += summed(1000) / f
        sums["map@r"] += summed(relevant) / relevant
        sums["map@c_released"] += summed(f) / f
        sums["r-precision"] += sum(hits[:relevant]) / relevant
        for k in ks:
            sums[f"recall@{k}"] += any(hits[:k])
    means = {name: value / counted if counted else math.nan for name, value in sums.items()}
    return means | {"queries": counted, "left_out": left_out}


def agree(ours: dict, theirs: dict) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert ours[name] == pytest.approx(value, abs=1e-12, nan_ok=True), name


sets = st.integers(2, 30).flatmap(lambda n: st.tuples(
    st.lists(st.lists(st.integers(-2, 2), min_size=2, max_size=2), min_size=n, max_size=n),
    st.lists(st.integers(0, 5), min_size=n, max_size=n)))


@settings(max_examples=60)
@given(sets, st.sampled_from(["torch", "faiss"]))
def test_ties_duplicates_and_lone_classes(case, backend):
    x, y = np.array(case[0], dtype=np.float32), case[1]
    agree(retrieval(x, y, similarity="dot", backend=backend, chunk=4), by_loops(x, y, ks=KS))


@settings(max_examples=40)
@given(sets, st.randoms(use_true_random=False))
def test_query_and_gallery(case, random):
    x, y = np.array(case[0], dtype=np.float32), np.array(case[1])
    cut = random.randrange(1, len(x))
    ours = retrieval(x[:cut], y[:cut], gallery=x[cut:], gallery_labels=y[cut:], ks=(1, 2, 4, 8), similarity="dot")
    agree(ours, by_loops(x[:cut], y[:cut], x[cut:], y[cut:]))
    roles = np.array([random.choice(["", "query", "gallery"]) for _ in x])
    query, shown = roles != "gallery", roles != "query"
    if query.any() and shown.any():
        place = {int(i): at for at, i in enumerate(np.flatnonzero(shown))}
        own = [place.get(int(i), -1) for i in np.flatnonzero(query)]
        ours = retrieval(x, y, roles=roles, ks=(1, 2, 4, 8), similarity="dot")
        agree(ours, by_loops(x[query], y[query], x[shown], y[shown], own))


def clouds(n=400, classes=20, d=16, seed=0, spread=1.0):
    random = np.random.default_rng(seed)
    y = np.sort(random.integers(0, classes, n))
    x = random.normal(size=(classes, d))[y] + spread * random.normal(size=(n, d))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), y


def told_apart(x, y):
    """Whether no query has a match and a mismatch so alike that their order in float32 depends on the processor."""
    similarity = x.astype(np.float64) @ x.T.astype(np.float64)
    order = similarity.argsort(axis=1)
    mixed = np.diff((y[order] == y[:, None]).astype(int), axis=1) != 0
    return np.diff(np.take_along_axis(similarity, order, 1), axis=1)[mixed].min() > 5e-7


@pytest.mark.parametrize("backend", ["torch", "faiss"])
def test_random_clouds_against_loops(backend):
    x, y = clouds()
    agree(retrieval(x, y, ks=(1, 2, 4, 8), backend=backend, similarity="dot"), by_loops(x, y))


def test_a_class_larger_than_a_thousand():
    x, y = clouds(n=1300, classes=2, d=4, spread=2.0)
    y[:1200], y[1200:] = 0, 1
    ours, theirs = retrieval(x, y, similarity="dot"), AccuracyCalculator(k=len(x) - 1).get_accuracy(
        torch.from_numpy(x), torch.from_numpy(y), include=("mean_average_precision_at_r", "r_precision"))
    assert ours["map@r"] == pytest.approx(theirs["mean_average_precision_at_r"], abs=1e-7)
    assert ours["r-precision"] == pytest.approx(theirs["r_precision"], abs=1e-7)


@pytest.mark.parametrize("apart", [False, True])
def test_pytorch_metric_learning(apart):
    x, y = next(cloud for cloud in (clouds(n=450, classes=30, d=32, seed=seed) for seed in itertools.count())
                if told_apart(*cloud))
    tensors = torch.from_numpy(x), torch.from_numpy(y)
    calculator = AccuracyCalculator(include=("precision_at_1", "mean_average_precision", "mean_average_precision_at_r",
                                             "r_precision"), k=300 if apart else 449)
    if apart:
        q, g = np.arange(450) % 3 == 0, np.arange(450) % 3 > 0
        theirs = calculator.get_accuracy(tensors[0][q], tensors[1][q], tensors[0][g], tensors[1][g])
        ours = retrieval(x[q], y[q], gallery=x[g], gallery_labels=y[g])
    else:
        theirs, ours = calculator.get_accuracy(*tensors), retrieval(*tensors)
    for mine, other in (("recall@1", "precision_at_1"), ("map@1000", "mean_average_precision"),
                        ("map@r", "mean_average_precision_at_r"), ("r-precision", "r_precision")):
        assert ours[mine] == pytest.approx(theirs[other], abs=1e-9), mine


def test_released_map_divides_by_the_class_with_the_query():
    # classes of 3 and 2, perfectly apart: (f - 1) / f of each query, averaged over queries
    scores = retrieval(np.eye(2)[[0, 0, 0, 1, 1]], [0, 0, 0, 1, 1])
    assert scores["map@1000"] == 1
    assert scores["map@1000_released"] == pytest.approx((3 * 2 / 3 + 2 * 1 / 2) / 5)
    assert scores["map@c_released"] == pytest.approx((3 * 2 / 3 + 2 * 1 / 2) / 5)


def test_hand_worked_query():
    # one query, gallery by falling similarity: right, wrong, right, wrong; R = 2
    gallery = np.array([[1, 0], [0.9, 0.4], [0.7, 0.7], [0, 1]])
    measured = retrieval(np.array([[1.0, 0.0]]), [5], gallery=gallery, gallery_labels=[5, 6, 5, 6], ks=(1, 2))
    assert measured["map@1000"] == pytest.approx((1 / 1 + 2 / 3) / 2)
    assert measured["map@r"] == pytest.approx((1 / 1) / 2)
    assert measured["r-precision"] == pytest.approx(1 / 2)


@pytest.mark.parametrize(("classes", "m"), [(10, 6), (50, 2), (4, 25)])
def test_a_constant_embedding_scores_chance(classes, m):
    y = np.repeat(np.arange(classes), m)
    n = len(y)
    flat = np.ones((n, 8), dtype=np.float32)
    # sorted by class: the first class hits (its first image finds the second), nobody else does
    assert retrieval(flat, y)["recall@1"] == pytest.approx(m / n)
    # in a random order every other image is equally likely to come first
    random = np.random.default_rng(0)
    scores = [retrieval(flat, random.permutation(y), ks=(1,))["recall@1"] for _ in range(100)]
    chance = (m - 1) / (n - 1)
    assert abs(np.mean(scores) - chance) < 4 * np.std(scores) / 10 + 1e-12
    assert retrieval(flat, y)["recall@1"] < chance + 1 / n * (1 + chance)


def test_collapse_to_a_point_beside_one_outlier_is_no_success():
    x = np.ones((60, 4), dtype=np.float32)
    x[7] = -1
    y = np.repeat(np.arange(10), 6)
    assert retrieval(x, y)["recall@1"] < 0.2


@settings(max_examples=40)
@given(st.integers(2, 40), st.integers(1, 8), st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_rotation_order_names_and_scale_change_nothing(n, classes, d, seed):
    random = np.random.default_rng(seed)
    y = random.integers(0, classes, n)
    x = random.normal(size=(n, d))
    cosines = np.sort(np.corrcoef(np.concatenate([x, -x], axis=1)), axis=1)  # with its mirror image no row has a mean
    assume(np.diff(cosines, axis=1).min() > 1e-5)  # neighbours nearer to each other than that may change places
    rotation, order = np.linalg.qr(random.normal(size=(d, d)))[0], random.permutation(n)
    base = retrieval(x, y)
    for other in (retrieval(x @ rotation, y), retrieval(x[order], y[order]), retrieval(x, random.permutation(8)[y]),
                  retrieval(x, [f"class {label}" for label in y]), retrieval(3.7 * x, y),
                  retrieval(x * random.uniform(0.1, 9, (n, 1)), torch.from_numpy(y))):
        assert other == pytest.approx(base, abs=1e-12, nan_ok=True)


@settings(max_examples=30)
@given(st.lists(st.integers(1, 7), min_size=2, max_size=12), st.integers(0, 2**32 - 1))
def test_perfect_clusters_of_any_sizes_give_one(counts, seed):
    assume(max(counts) > 1)
    random = np.random.default_rng(seed)
    y = random.permutation(np.repeat(np.arange(len(counts)), counts))
    scores = retrieval(np.eye(len(counts))[y] + 1e-3 * random.normal(size=(len(y), len(counts))), y)
    assert scores["left_out"] == counts.count(1)
    assert {scores[f"recall@{k}"] for k in KS} == {1.0}
    assert [scores[name] for name in ("map@1000", "map@r", "r-precision")] == pytest.approx([1, 1, 1])
    shares = [(f - 1) / f for f in counts for _ in range(f) if f > 1]
    assert scores["map@1000_released"] == scores["map@c_released"] == pytest.approx(np.mean(shares))


@settings(max_examples=10)  # 60 searches each
@given(st.lists(st.integers(0, 4), min_size=2, max_size=14), st.integers(1, 6))
def test_a_constant_embedding_gives_chance_over_all_orders(labels, k):
    # over random orders the k that lead the list are k of the others, drawn without favour
    y = np.array(labels)
    flat, n = np.ones((len(y), 3)), len(y)
    assume(any((y == label).sum() > 1 for label in y))
    counted = np.array([(y == label).sum() > 1 for label in y])
    random = np.random.default_rng(0)
    measured = [retrieval(flat, random.permutation(y), ks=(k,))[f"recall@{k}"] for _ in range(60)]
    sizes = np.array([(y == label).sum() - 1 for label in y])[counted]
    missed = [math.comb(n - 1 - m, min(k, n - 1)) / math.comb(n - 1, min(k, n - 1)) for m in sizes]
    assert abs(np.mean(measured) - (1 - np.mean(missed))) < 5 * np.std(measured) / 60**0.5 + 0.02


def test_one_class_and_no_second_image():
    random = np.random.default_rng(0)
    assert retrieval(random.normal(size=(9, 3)), np.zeros(9, int))["recall@1"] == 1
    alone = retrieval(random.normal(size=(9, 3)), np.arange(9))
    assert (alone["queries"], alone["left_out"]) == (0, 9)
    assert math.isnan(alone["recall@1"])
    single = retrieval(np.ones((1, 3)), [0])
    assert (single["queries"], single["left_out"]) == (0, 1)


def test_outcomes_tell_the_same_as_the_means():
    x, y = clouds(n=200, classes=60, d=8, seed=6, spread=1.5)
    roles = np.where(np.arange(200) % 5 == 0, "gallery", "")
    measured = outcomes(x, y, roles=roles)
    assert measured.queries.sum() == len(measured.first_hit) == len(measured.counted) == 160
    assert measured.counted.sum() == measured.scores["queries"]
    for k in (1, 2, 4, 8, 1000):
        hit = (measured.first_hit > 0) & (measured.first_hit <= k)
        assert hit[measured.counted].mean() == pytest.approx(measured.scores[f"recall@{k}"])


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize(("factor", "kind"), [(1e20, np.float32), (1e-16, np.float32), (1e30, np.float32),
                                              (1e-30, np.float32), (1e200, np.float64), (1e-200, np.float64)])
def test_large_and_small_numbers_change_no_score(factor, kind, similarity):
    x, y = clouds(n=300, classes=12, d=8, seed=3, spread=1.5)
    x = x.astype(np.float64) * np.linspace(0.5, 3, 300)[:, None]
    expected = by_loops(x / np.linalg.norm(x, axis=1, keepdims=True) if similarity == "cosine" else x, y)
    agree(retrieval((x * factor).astype(kind), y, ks=(1, 2, 4, 8), similarity=similarity), expected)
    assert retrieval(np.full((4, 3), 1e38), [0, 0, 1, 1], ks=(1,))["queries"] == 4


@settings(max_examples=60)
@given(st.lists(st.floats(-2.0**127, 2.0**127, width=32), min_size=3, max_size=3))
def test_unit_is_the_direction_of_any_row(row):
    exact = [Fraction(value) for value in row]
    length = math.isqrt(int(sum(value**2 for value in exact) * 2**600)) / Fraction(2)**300
    measured = unit(torch.tensor([row]))[0].tolist()
    assert measured == (pytest.approx([float(value / length) for value in exact], abs=3e-7) if length else [0, 0, 0])


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(-60, 60))
def test_usual_rows_keep_their_bits(seed, exponent):
    x = torch.from_numpy(np.random.default_rng(seed).normal(size=(5, 7)).astype(np.float32))
    plain = torch.nn.functional.normalize(x)
    assert torch.equal(unit(x), plain)
    assert torch.equal(unit(x * 2.0**exponent), plain)
    assert torch.equal(unit(x.double()), plain)


def test_without_a_gallery_every_query_is_left_out():
    x, y = clouds(n=20, classes=4)
    for backend in ("torch", "faiss"):
        for options in ({"roles": ["query"] * 20}, {"gallery": x[:0], "gallery_labels": y[:0]}):
            measured = retrieval(x, y, backend=backend, ks=(1, 2, 4, 8), **options)
            agree(measured, by_loops(x, y, x[:0], y[:0]))
            assert (measured["queries"], measured["left_out"]) == (0, 20)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_cuda():
    x, y = clouds(n=900, classes=30, d=32, seed=1)
    assert retrieval(torch.from_numpy(x).cuda(), y) == pytest.approx(retrieval(x, y), abs=1e-6)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"embeddings": np.full((3, 2), np.nan), "labels": [0, 0, 1]}, "row 0 holds NaN"),
    ({"embeddings": np.array([[1.0], [np.inf], [-np.inf]]), "labels": [0, 0, 1]}, "row 1 holds NaN"),
    ({"embeddings": np.ones((3, 2)), "labels": [0, 0]}, "3 embeddings"),
    ({"embeddings": np.ones(3), "labels": [0, 0, 1]}, "one row an image"),
    ({"embeddings": np.ones((3, 2)), "labels": [0, 0, 1], "roles": ["", "", "probe"]}, "'probe' is no role"),
    ({"embeddings": np.ones((3, 2)), "labels": [0, 0, 1], "roles": [""]}, "1 roles for 3"),
    ({"embeddings": np.ones((3, 2)), "labels": [0, 0, 1], "gallery": np.ones((2, 2)), "gallery_labels": [0, 1],
      "roles": [""] * 3}, "exclude each other"),
    ({"embeddings": np.ones((3, 2)), "labels": [0, 0, 1], "similarity": "cosin"}, "there are cosine, dot"),
    ({"embeddings": np.ones((3, 2)), "labels": [0, 0, 1], "backend": "fais"}, "unknown backend 'fais'"),
    ({"embeddings": np.ones((3, 2)), "labels": [0, 0, 1], "gallery": np.ones((2, 3)), "gallery_labels": [0, 1]},
     "queries have 2 dimensions, the gallery has 3"),
    ({"embeddings": np.ones((3, 0)), "labels": [0, 0, 1]}, "one row an image"),
])
def test_mistakes_are_one_line(arguments, message):
    with pytest.raises(UserError, match=message) as error:
        retrieval(arguments.pop("embeddings"), arguments.pop("labels"), **arguments)
    assert "\n" not in str(error.value)


def test_labels_that_no_integer_type_holds_together_are_refused() -> None:
    x, big = np.eye(4, dtype=np.float32), np.array([2**62, 2**62 + 1])
    with pytest.raises(UserError, match="int64, of the gallery uint64"):
        retrieval(x[:2], big, gallery=x[2:], gallery_labels=big.astype(np.uint64))
    assert retrieval(x[:2], big, gallery=x[:2], gallery_labels=big)["recall@1"] == 1


def test_the_default_type_of_torch_does_not_matter() -> None:
    x, y = np.random.default_rng(0).normal(size=(20, 4)), np.arange(20) % 4
    expected = retrieval(x, y)
    torch.set_default_dtype(torch.float64)
    try:
        assert retrieval(x, y) == expected
    finally:
        torch.set_default_dtype(torch.float32)

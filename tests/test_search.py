"""Nearest neighbours against a full stable sort in float64 and against faiss."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmark.metrics import search
from benchmark.metrics.search import neighbours, stream
from benchmark.utils.errors import UserError


def by_sorting(queries: np.ndarray, gallery: np.ndarray, k: int, own: np.ndarray | None = None) -> np.ndarray:
    """All similarities in float64, each row sorted by (falling similarity, index)."""
    rows = []
    for i, query in enumerate(queries.astype(np.float64)):
        similarity = gallery.astype(np.float64) @ query
        order = sorted(range(len(gallery)), key=lambda j: (-similarity[j], j))
        if own is not None and own[i] >= 0:
            order = [j for j in order if j != own[i]]
        rows.append(order[:k])
    return np.array(rows)


# small integers have exact products, so that ties are ties in every precision and on every road
integers = st.integers(1, 40).flatmap(lambda n: st.tuples(
    st.lists(st.lists(st.integers(-2, 2), min_size=3, max_size=3), min_size=n, max_size=n),
    st.integers(1, 45), st.integers(1, 50)))


@settings(max_examples=60)
@given(integers, st.sampled_from(["torch", "faiss"]), st.booleans())
def test_ties_are_ordered_by_index(case, backend, exclude):
    points, k, chunk = np.array(case[0], dtype=np.float32), case[1], case[2]
    own = np.arange(len(points)) if exclude else None
    indices, similarities = neighbours(torch.from_numpy(points), k=k, exclude_self=exclude, chunk=chunk,
                                       backend=backend)
    expected = by_sorting(points, points, k, own)
    assert indices.shape == (len(points), min(k, len(points) - exclude))
    np.testing.assert_array_equal(indices.numpy(), expected.reshape(indices.shape))
    np.testing.assert_array_equal(similarities.numpy(),
                                  np.take_along_axis(points @ points.T, indices.numpy(), 1))


@pytest.mark.parametrize("layout", ["random", "one group is best", "one group is worst", "sorted", "constant",
                                    "signed zeros", "negative"])
@pytest.mark.parametrize("k", [1, 8, 40, 90, 1400, 1507])
def test_large_galleries_in_any_layout(layout, k):
    # a CPU takes its threshold from the maxima of groups of columns; for k <= 40 a group is every 94th of the first
    # 1504 columns and the last 3 are in no group
    random = np.random.default_rng(k)
    gallery = random.integers(-6, 7, (1507, 5))
    strength = (gallery**2).sum(axis=1).argsort()
    if layout.startswith("one group"):
        chosen = strength[-17:] if layout.endswith("best") else strength[:17]
        order = np.empty(1507, dtype=int)
        order[::94], order[np.arange(1507) % 94 > 0] = chosen, np.setdiff1d(np.arange(1507), chosen)
        gallery = np.abs(gallery[order])
    elif layout == "sorted":
        gallery = np.abs(gallery[strength])
    elif layout == "constant":
        gallery[:] = 3
    elif layout == "signed zeros":
        gallery[:, 1:] = 0
        gallery[:, 0] = random.integers(0, 2, 1507)
    elif layout == "negative":
        gallery = -1 - np.abs(gallery)
    queries = np.concatenate([np.abs(gallery[:4]), -np.abs(gallery[:2])])
    nearest, _ = neighbours(torch.tensor(queries), torch.tensor(gallery), k, exclude_self=False)
    np.testing.assert_array_equal(nearest.numpy(), by_sorting(queries, gallery, k))


@pytest.mark.parametrize("k", [1, 8, 40, 299, 300])
def test_the_road_of_the_cpu_and_that_of_the_gpu_agree(k):
    random = np.random.default_rng(k)
    rows = random.integers(-3, 4, (20, 300)).astype(np.float32)  # full of ties
    rows[:5] = random.normal(size=(5, 300))
    rows[5], rows[6, 7] = 1, -np.inf
    for one, two in zip(search._nearest_by_threshold(rows, k), search._nearest_by_topk(torch.from_numpy(rows), k)):
        torch.testing.assert_close(one, two, rtol=0, atol=0)


@pytest.mark.parametrize("backend", ["torch", "faiss"])
@pytest.mark.parametrize("chunk", [1, 7, None])
def test_queries_partly_in_the_gallery(backend, chunk):
    random = np.random.default_rng(0)
    gallery, queries = random.integers(-3, 4, (30, 4)), random.integers(-3, 4, (12, 4))
    own = np.array([-1, 3, -1, 29, 0, 5, -1, -1, 7, 8, 9, -1])
    queries[own >= 0] = gallery[own[own >= 0]]
    for k in (1, 5, 29, 30, 100):
        indices, similarities = neighbours(torch.tensor(queries), torch.tensor(gallery), k,
                                           exclude_self=torch.from_numpy(own), chunk=chunk, backend=backend)
        assert indices.shape[1] == min(k, 30)
        for i, row in enumerate(by_sorting(queries, gallery, 30, None)):
            expected = [j for j in row if j != own[i]][:k]
            assert indices[i, :len(expected)].tolist() == expected
            assert indices[i, len(expected):].tolist() == [-1] * (min(k, 30) - len(expected))
            assert torch.isinf(similarities[i, len(expected):]).all()


@pytest.mark.parametrize("backend", ["torch", "faiss"])
@pytest.mark.parametrize("n", [101, 1003])
def test_equal_rows_are_ties_wherever_they_stand(n, backend):
    # products of equal columns differ in the last bit at the edge of a block; 2-fold and 3-fold copies at odd places
    distinct = torch.nn.functional.normalize(torch.randn(n // 2, 33, generator=torch.Generator().manual_seed(1)))
    source = torch.cat([torch.arange(n // 2), torch.arange(n - n // 2) % (n // 2)])
    nearest, _ = neighbours(distinct[source], k=40, exclude_self=True, backend=backend, chunk=29)
    for i, row in enumerate(source[nearest].tolist()):
        here = nearest[i].tolist()
        for a, b, left, right in zip(row, row[1:], here, here[1:]):
            assert a != b or left < right
        copies = [j for j in torch.nonzero(source == source[i]).flatten().tolist() if j != i]
        assert here[:len(copies)] == copies


@pytest.mark.parametrize("chunk", [1, 13, 64, None])
def test_random_data_agree_with_float64_and_faiss(chunk):
    points = torch.nn.functional.normalize(torch.randn(150, 24, generator=torch.Generator().manual_seed(2)))
    expected = by_sorting(points.numpy(), points.numpy(), 50, np.arange(150))
    for backend in ("torch", "faiss"):
        indices, similarities = neighbours(points, k=50, exclude_self=True, chunk=chunk, backend=backend)
        np.testing.assert_array_equal(indices.numpy(), expected)
        products = (points.double() @ points.double().T).numpy()
        np.testing.assert_allclose(similarities, np.take_along_axis(products, expected, 1), atol=1e-6)
        assert (similarities.dtype, indices.dtype) == (torch.float32, torch.int64)


def test_faiss_differs_only_within_rounding():
    # among 4,000 points some neighbours differ by less than float32 tells, whichever way 33 products are summed
    points = torch.nn.functional.normalize(torch.randn(4000, 33, generator=torch.Generator().manual_seed(4)))
    ours, theirs = (neighbours(points[:300], points, 400, exclude_self=True, backend=backend)
                    for backend in ("torch", "faiss"))
    exact = points[:300].double() @ points.double().T
    torch.testing.assert_close(ours[1], theirs[1], rtol=0, atol=1e-6)
    for indices, _ in (ours, theirs):
        assert (exact.gather(1, indices).diff(dim=1) < 1e-6).all()
    apart = (ours[0] != theirs[0]).nonzero()
    assert 0 < len(apart) < 300 * 400 / 100, "the points are too far apart or too close to show anything"
    for row, place in apart.tolist():
        assert abs(exact[row, ours[0][row, place]] - exact[row, theirs[0][row, place]]) < 1e-6


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("k", [1, 40, 1400])
def test_on_cuda(k):
    random = np.random.default_rng(k)
    gallery, queries = random.integers(-6, 7, (1500, 5)), random.integers(-6, 7, (20, 5))
    nearest, _ = neighbours(torch.tensor(queries).cuda(), torch.tensor(gallery).cuda(), k, exclude_self=False)
    np.testing.assert_array_equal(nearest.cpu().numpy(), by_sorting(queries, gallery, k))


def test_precision_around_does_not_matter():
    points = torch.randn(60, 16, generator=torch.Generator().manual_seed(3))
    calm = neighbours(points, k=9, exclude_self=True)
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hasty = neighbours(points.requires_grad_(), k=9, exclude_self=True)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert all(torch.equal(a, b) for a, b in zip(calm, hasty))
    assert not hasty[1].requires_grad


def test_nothing_to_search():
    one = torch.ones(1, 4)
    assert neighbours(one, k=3, exclude_self=True)[0].shape == (1, 0)
    assert neighbours(one, k=3, exclude_self=False)[0].tolist() == [[0]]
    assert neighbours(torch.ones(0, 4), one, 3, exclude_self=False)[0].shape == (0, 3)
    assert list(stream(torch.ones(0, 4), exclude_self=True)) == []
    for backend in ("torch", "faiss"):
        indices, similarities = neighbours(torch.ones(3, 4), one[:0], 2, exclude_self=False, backend=backend)
        assert (indices.shape, similarities.shape) == ((3, 0), (3, 0))


@pytest.mark.parametrize(("options", "message"), [
    ({"backend": "fais"}, "unknown backend 'fais' .*'faiss'.*; there are torch, faiss"),
    ({"gallery": torch.ones(2, 3)}, "queries have 4 dimensions, the gallery has 3"),
])
def test_what_cannot_be_searched_is_one_line(options, message):
    with pytest.raises(UserError, match=message):
        neighbours(torch.ones(3, 4), k=1, exclude_self=False, **options)


def test_zero_of_either_sign_is_the_same_row():
    points = torch.tensor([[0.0, 1.0], [-0.0, 1.0], [0.0, 1.0]])
    assert neighbours(points, k=2, exclude_self=True)[0].tolist() == [[1, 2], [0, 2], [0, 1]]


def test_faiss_missing_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UserError, match="pip install faiss-cpu"):
        neighbours(torch.ones(3, 2), k=1, exclude_self=True, backend="faiss")

"""The Fréchet distance against scipy's matrix square root and against Gaussians whose distance is known."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group

from splits import SplitError, frechet
from splits.frechet import LADDER, Moments, frd_class_means_released, frechet_distance


def by_sqrtm(x: np.ndarray, y: np.ndarray, eps: float = 0.0) -> float:
    s1, s2 = np.cov(x.T), np.cov(y.T)
    ridge = eps * np.eye(len(s1))
    gap = x.mean(axis=0) - y.mean(axis=0)
    root = scipy.linalg.sqrtm((s1 + ridge) @ (s2 + ridge)).real
    return float(gap @ gap + np.trace(s1) + np.trace(s2) - 2 * np.trace(root))


def sets(n: int, m: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * np.arange(1, d + 1) ** -0.5, rng.normal(size=(m, d)) @ rng.normal(size=(d, d)) + 1


def with_variances(variances: np.ndarray, mean: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    """Rows whose mean and unbiased covariance (rotation diag(variances) rotation^T) are exactly these."""
    live = np.flatnonzero(variances)
    spokes = np.eye(len(variances))[live] * np.sqrt((2 * len(live) - 1) / 2 * variances[live])[:, None]
    return np.vstack([spokes, -spokes]) @ rotation.T + mean


@pytest.mark.parametrize(("n", "m", "d"), [(200, 150, 20), (500, 70, 64), (41, 300, 40)])
def test_agrees_with_sqrtm(n: int, m: int, d: int) -> None:
    x, y = sets(n, m, d)
    expected = pytest.approx(by_sqrtm(x, y), rel=1e-8)
    assert frechet_distance(x, y) == expected
    assert frechet_distance(Moments.of(x), Moments.of(y)) == expected
    assert frechet_distance(torch.from_numpy(x), torch.from_numpy(y)) == expected
    assert frechet_distance(x, Moments.of(y)) == expected


@pytest.mark.parametrize(("live_x", "live_y"), [(30, 30), (7, 12), (30, 9), (3, 30)])
def test_closed_form_also_where_covariances_are_singular(live_x: int, live_y: int) -> None:
    """Covariances that commute: ||mu_1 - mu_2||^2 + sum_k (sigma_1k - sigma_2k)^2."""
    rng = np.random.default_rng(live_x)
    d = 30
    rotation = ortho_group.rvs(d, random_state=rng)
    v, w = rng.uniform(0.1, 3, d), rng.uniform(0.1, 3, d)
    v[live_x:], w[: d - live_y] = 0, 0
    mu, nu = rng.normal(size=d), rng.normal(size=d)
    x, y = with_variances(v, mu, rotation), with_variances(w, nu, rotation)
    expected = pytest.approx(((mu - nu) ** 2).sum() + ((v**0.5 - w**0.5) ** 2).sum(), rel=1e-10)
    assert frechet_distance(x, y) == expected
    assert frechet_distance(Moments.of(x), Moments.of(y)) == pytest.approx(expected.expected, rel=1e-8)


@settings(max_examples=30)
@given(st.integers(2, 40), st.integers(2, 40), st.integers(1, 25), st.integers(0, 1000), st.floats(0, 1e4))
def test_properties(n: int, m: int, d: int, seed: int, shift: float) -> None:
    x, y = sets(n, m, d, seed)
    scale = np.square(x).sum() + np.square(y).sum()
    computed = frechet_distance(x, y)
    rng = np.random.default_rng(seed)
    assert frechet_distance(y, x) == pytest.approx(computed, rel=1e-9, abs=1e-9 * scale)
    assert frechet_distance(x[rng.permutation(n)], y) == pytest.approx(computed, rel=1e-9, abs=1e-9 * scale)
    assert frechet_distance(x + shift, y + shift) == pytest.approx(computed, rel=1e-6, abs=1e-9 * scale)
    assert frechet_distance(Moments.of(x), Moments.of(y)) == pytest.approx(computed, rel=1e-7, abs=1e-7 * scale)
    assert frechet_distance(x, x.copy()) == pytest.approx(0, abs=1e-12 * scale)
    assert frechet_distance(Moments.of(x), Moments.of(x)) == pytest.approx(0, abs=1e-12 * scale)


def test_moments_follow_every_move() -> None:
    rng = np.random.default_rng(0)
    groups = [rng.normal(size=(rng.integers(2, 9), 12)) + 100 for _ in range(20)]
    left, right = set(range(10)), set(range(10, 20))
    a, b = (Moments.of(np.vstack([groups[i] for i in side])) for side in (left, right))
    for _ in range(100):
        i, j = rng.choice(sorted(left)), rng.choice(sorted(right))
        a, b = (a + Moments.of(groups[j]) - Moments.of(groups[i]), b + Moments.of(groups[i]) - Moments.of(groups[j]))
        left, right = left - {i} | {j}, right - {j} | {i}
    rows = np.vstack([groups[i] for i in sorted(left)])
    assert a.count == len(rows)
    np.testing.assert_allclose(a.sum, rows.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(a.outer, rows.T @ rows, rtol=1e-12)
    np.testing.assert_allclose(a.covariance, np.cov(rows.T), rtol=1e-9, atol=1e-11)


def test_a_large_mean_does_not_cancel() -> None:
    x, y = sets(300, 300, 8)
    near = frechet_distance(x, y)
    assert frechet_distance(x + 1e6, y + 1e6) == pytest.approx(near, rel=1e-7)


def test_dimensions_that_are_dead_on_one_side() -> None:
    x, y = sets(200, 200, 20)
    x[:, 3:6] = 0
    y[:, 10] = 7
    expected = frechet_distance(x, y)
    gap = x.mean(axis=0) - y.mean(axis=0)
    live = [k for k in range(20) if k not in (3, 4, 5, 10)]
    trimmed = by_sqrtm(x[:, live], y[:, live])
    dead = [3, 4, 5, 10]
    rest = (gap[dead] ** 2).sum() + x[:, dead].var(axis=0, ddof=1).sum() + y[:, dead].var(axis=0, ddof=1).sum()
    assert expected == pytest.approx(trimmed + rest, rel=1e-8)


def test_float32_input_is_solved_in_float64() -> None:
    x, y = sets(200, 150, 16)
    x, y = x.astype(np.float32), y.astype(np.float32)
    assert frechet_distance(x, y) == pytest.approx(by_sqrtm(x.astype(float), y.astype(float)), rel=1e-8)
    assert frechet_distance(torch.tensor(x), torch.tensor(y)) == frechet_distance(x, y)


@pytest.mark.parametrize(("n", "m", "d"), [(200, 150, 20), (15, 12, 40), (100, 12, 40), (30, 29, 30)])
def test_the_tensor_road_without_a_gpu(n: int, m: int, d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU computes, done by torch on the CPU, against LAPACK."""
    x, y = sets(n, m, d)
    y[:, 3] = 1
    expected = frechet_distance(x, y), frd_class_means_released(x, y), frechet_distance(Moments.of(x), Moments.of(y))
    monkeypatch.setattr(frechet, "float64", lambda rows: torch.as_tensor(rows).double())
    assert isinstance(Moments.of(x).covariance, torch.Tensor)
    computed = frechet_distance(x, y), frd_class_means_released(x, y), frechet_distance(Moments.of(x), Moments.of(y))
    assert computed == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(("n", "m", "d"), [(200, 150, 20), (15, 12, 40), (30, 29, 30)])
def test_a_gpu_whose_routines_fail_is_helped_by_the_cpu(n: int, m: int, d: int,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """cuSOLVER's eigenvalues of a matrix with many equal ones may not converge: seen with 63 equal of 64."""
    expected = frechet_distance(*sets(n, m, d))
    tried = []

    def failing(name: str) -> object:
        found = getattr(torch.linalg, name)

        def once(a: torch.Tensor) -> object:
            tried.append(name)
            if len(tried) % 2:
                raise torch.linalg.LinAlgError(f"linalg.{name}: The algorithm failed to converge")
            return found(a)

        return once

    monkeypatch.setattr(frechet, "float64", lambda rows: torch.as_tensor(rows).double())
    for name in ("eigh", "eigvalsh", "svdvals"):
        monkeypatch.setattr(torch.linalg, name, failing(name))
    assert frechet_distance(*sets(n, m, d)) == pytest.approx(expected, rel=1e-8)
    assert tried


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("n", "m", "d"), [(200, 150, 20), (15, 12, 40), (100, 12, 40)])
def test_on_a_gpu(n: int, m: int, d: int) -> None:
    x, y = sets(n, m, d)
    a, b = (torch.from_numpy(s).cuda() for s in (x, y))
    assert frechet_distance(a, b) == pytest.approx(frechet_distance(x, y), rel=1e-8)
    assert frd_class_means_released(a, b) == pytest.approx(frd_class_means_released(x, y), rel=1e-8)
    assert frechet_distance(Moments.of(a), Moments.of(b)) == pytest.approx(frechet_distance(x, y), rel=1e-8)


@pytest.mark.parametrize(("n", "m", "d"), [(10, 12, 60), (20, 20, 30), (12, 80, 30), (80, 90, 30)])
def test_class_means_as_released(n: int, m: int, d: int) -> None:
    """The script: eps on both diagonals, sqrtm, real part, traces without eps."""
    x, y = sets(n, m, d)
    assert frd_class_means_released(x, y) == pytest.approx(by_sqrtm(x, y, eps=1e-8), rel=1e-7)
    large = by_sqrtm(x, y, eps=1e-2)
    assert frd_class_means_released(x, y, eps=1e-2) == pytest.approx(large, rel=1e-10)
    assert frd_class_means_released(Moments.of(x), Moments.of(y), eps=1e-2) == pytest.approx(large, rel=1e-10)


def test_bad_input() -> None:
    x, y = sets(10, 10, 4)
    y[3, 2] = np.nan
    for bad in (y, y[:, :3], y[:1], y[0]):
        with pytest.raises(SplitError):
            frechet_distance(x, bad)
    with pytest.raises(SplitError, match="cannot be taken"):
        Moments.of(x) - Moments.of(x)


def test_the_ladders_tolerance_holds_where_covariances_are_near_singular() -> None:
    rng = np.random.default_rng(5)
    spectrum = 10.0 ** -np.linspace(0, 9, 60)
    x, y = (rng.normal(size=(400, 60)) * spectrum @ rng.normal(size=(60, 60)) for _ in range(2))
    exact = frechet_distance(x, y)
    scale = np.trace(np.cov(x.T)) + np.trace(np.cov(y.T))
    assert abs(frechet_distance(x, y, LADDER) - exact) <= LADDER * scale

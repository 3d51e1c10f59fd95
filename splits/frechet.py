"""The Fréchet distance of two sets of vectors, each seen as a Gaussian, and the moments it is made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from splits import SplitError

CHUNK = 8192
"""Rows that are turned to float64 at once: 134 MB at d = 2048."""

EPSILON = float(np.finfo(np.float64).eps)
TRUSTED = 1e-9
"""Estimated relative error of the trace term above which the slower, safer road is taken."""
LADDER = 1e-7
"""The same where hundreds of distances are only compared with each other."""


def float64(x: Any) -> Any:
    """A CUDA tensor as float64 tensor, everything else as float64 numpy array."""
    if hasattr(x, "detach"):
        x = x.detach().double()
        return x if x.is_cuda else x.numpy()
    return np.asarray(x, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean and scatter sum_i (x_i - mean)(x_i - mean)^T of a set, in float64; sets can be added and taken away.

    Kept about the mean rather than the origin, so that nothing cancels when the mean is large (Chan et al. 1979).

    >>> a, b = Moments.of(np.eye(3)), Moments.of(np.ones((2, 3)))
    >>> (a + b).count, (a + b).mean.round(6).tolist()
    (5, [0.6, 0.6, 0.6])
    >>> bool(np.allclose((a + b - b).covariance, np.cov(np.eye(3).T)))
    True
    """

    count: int
    mean: Any
    scatter: Any

    @classmethod
    def of(cls, x: Any) -> Moments:
        """The moments of the rows of an (n, d) array or tensor."""
        _check_matrix(x)
        return cls.of_chunks(x[i : i + CHUNK] for i in range(0, len(x), CHUNK))

    @classmethod
    def of_chunks(cls, chunks: Iterable[Any]) -> Moments:
        """The moments of all rows of several arrays, of which only one need be in memory."""
        count = 0
        origin: Any = None
        total: Any = None
        outer: Any = None
        for chunk in chunks:
            rows = float64(chunk)
            if origin is None:
                origin = rows.mean(0)
                total, outer = 0 * origin, 0 * origin[:, None] * origin
            rows = rows - origin
            count += len(rows)
            total += rows.sum(0)
            outer += rows.T @ rows
        if origin is None:
            raise SplitError("moments of an empty set of vectors were asked for")
        return cls(count, origin + total / count, outer - total[:, None] * (total / count))

    @property
    def sum(self) -> Any:
        return self.count * self.mean

    @property
    def outer(self) -> Any:
        """The sum of outer products about the origin, sum_i x_i x_i^T."""
        return self.scatter + self.count * self.mean[:, None] * self.mean

    @property
    def covariance(self) -> Any:
        """The unbiased covariance."""
        if self.count < 2:
            raise SplitError(f"a covariance needs two vectors, this set has {self.count}")
        return self.scatter / (self.count - 1)

    def __add__(self, other: Moments) -> Moments:
        count = self.count + other.count
        gap = other.mean - self.mean
        scatter = self.scatter + other.scatter + gap[:, None] * (gap * (self.count * other.count / count))
        return Moments(count, self.mean + gap * (other.count / count), scatter)

    def __sub__(self, part: Moments) -> Moments:
        count = self.count - part.count
        if count < 1:
            raise SplitError(f"{part.count} vectors cannot be taken from a set of {self.count}")
        mean = self.mean + (self.mean - part.mean) * (part.count / count)
        gap = part.mean - mean
        between = gap[:, None] * (gap * (count * part.count / self.count))
        return Moments(count, mean, self.scatter - part.scatter - between)


@dataclass(frozen=True)
class _Rows:
    """A set with fewer vectors than dimensions: the centred rows over sqrt(n - 1), a factor of its covariance."""

    mean: Any
    factor: Any


def frechet_distance(x: Any, y: Any, tolerance: float = TRUSTED) -> float:
    """The squared Fréchet distance of two (n, d) arrays, tensors or `Moments`.

    d(X1, X2) = ||mu_1 - mu_2||^2 + tr(S_1 + S_2 - 2 (S_1 S_2)^(1/2)), with unbiased covariances S and in float64.

    No matrix square root is taken: tr (S_1 S_2)^(1/2) is the sum of the roots of the eigenvalues of L^T S_2 L, where
    S_1 = L L^T, and equally the sum of the singular values of F_1 F_2^T for any factors S = F^T F. The first is taken
    where both sets have more vectors than dimensions and the eigenvalues are well above rounding; the second for
    few vectors (F: the centred rows) and for near singular covariances (F: a pivoted Cholesky factor). No ridge.

    Accuracy, relative to tr S_1 + tr S_2: about 1e-13 where well conditioned, better than 1e-8 where singular; a
    larger `tolerance` takes the first road more often, which is twice as fast and then right to about that.

    >>> frechet_distance(np.array([[0.0, 0], [2, 0]]), np.array([[3.0, 0], [9, 0]]))
    33.0
    """
    one, two = _side(x), _side(y)
    if one.mean.shape != two.mean.shape:
        raise SplitError(f"vectors of {len(one.mean)} and of {len(two.mean)} dimensions cannot be compared")
    if isinstance(one, Moments) and isinstance(two, Moments):
        s1, s2 = one.covariance, two.covariance
        return _distance(one.mean - two.mean, s1.trace() + s2.trace(), _trace_of_root(s1, s2, tolerance))
    f1, f2 = (s.factor if isinstance(s, _Rows) else _factor(s.covariance) for s in (one, two))
    return _distance(one.mean - two.mean, (f1 * f1).sum() + (f2 * f2).sum(), _nuclear_norm(f1 @ f2.T))


def frd_class_means_released(x: Any, y: Any, eps: float = 1e-8) -> float:
    """The distance over class means as the script released with the ooDML paper computes it.

    `x` and `y` hold one mean vector a class, (C, d), or are the `Moments` of these. `eps` is added to both diagonals
    before the matrix square root, not in the traces: ||mu_1 - mu_2||^2 + tr(S_1 + S_2) - 2 tr ((S_1 + eps)(S_2 +
    eps))^(1/2). With C far below d this is not the distance without `eps`. The script takes `scipy.linalg.sqrtm` of the
    d x d product; here the same number is found in the span of the class means, outside of which both are eps.

    >>> round(frd_class_means_released(np.array([[0.0, 0], [2, 0]]), np.array([[3.0, 0], [9, 0]])), 6)
    33.0
    """
    one, two = _side(x), _side(y)
    d = len(one.mean)
    if isinstance(one, _Rows) and isinstance(two, _Rows) and len(one.factor) + len(two.factor) < d:
        # With (A; B)(A; B)^T = V diag(w) V^T, the columns of w^(1/2) V^T are the rows of both factors in an
        # orthonormal basis of their span. Its rounding, below 1e-15 of the largest eigenvalue, is far below eps.
        stack = np.vstack if isinstance(one.factor, np.ndarray) else _torch().vstack
        rows = stack([one.factor, two.factor])
        values, vectors = _decompose("eigh", rows @ rows.T)
        span = values.clip(min=0.0)[:, None] ** 0.5 * vectors.T
        f1, f2 = span[:, : len(one.factor)], span[:, len(one.factor) :]
        s1, s2 = f1 @ f1.T, f2 @ f2.T
        root = _nuclear_norm(_factor(s1, eps) @ _factor(s2, eps).T) + eps * (d - len(s1))
    else:
        s1, s2 = (s.factor.T @ s.factor if isinstance(s, _Rows) else s.covariance for s in (one, two))
        root = _trace_of_root(_ridge(s1, eps), _ridge(s2, eps))
    return _distance(one.mean - two.mean, s1.trace() + s2.trace(), root)


def _distance(gap: Any, traces: Any, root: float) -> float:
    return max(0.0, float(gap @ gap) + float(traces) - 2 * root)


def _side(x: Any) -> Moments | _Rows:
    if isinstance(x, Moments):
        return x
    n, d = _check_matrix(x)
    if n < 2:
        raise SplitError(f"a Fréchet distance needs two vectors a side, one side has {n}")
    side: Moments | _Rows
    if n > d:
        side = Moments.of(x)
        spread = side.scatter.trace()
    else:
        rows = float64(x)
        mean = rows.mean(0)
        side = _Rows(mean, (rows - mean) / (n - 1) ** 0.5)
        spread = (side.factor * side.factor).sum()
    if not np.isfinite(float(spread)):
        raise SplitError("features hold NaN or infinite values; delete the cached ones and extract them again")
    return side


def _check_matrix(x: Any) -> tuple[int, int]:
    if getattr(x, "ndim", None) != 2 or x.shape[1] == 0:
        raise SplitError(f"features must be a matrix (images, dimensions), got shape {tuple(np.shape(x))}")
    return x.shape


def _torch() -> Any:
    import torch

    return torch


def _decompose(name: str, a: Any) -> Any:
    """`linalg.NAME` of an array or tensor; on the CPU where a GPU's routine fails, as it may for equal eigenvalues."""
    if isinstance(a, np.ndarray):
        return getattr(np.linalg, name)(a)
    linalg = _torch().linalg
    try:
        return getattr(linalg, name)(a)
    except linalg.LinAlgError:
        found = getattr(linalg, name)(a.cpu())
        return found.to(a.device) if name != "eigh" else tuple(part.to(a.device) for part in found)


def _ridge(s: Any, eps: float) -> Any:
    s = s + 0.0
    (np.einsum("ii->i", s) if isinstance(s, np.ndarray) else s.diagonal())[:] += eps
    return s


def _trace_of_root(s1: Any, s2: Any, tolerance: float = TRUSTED) -> float:
    """tr (S_1 S_2)^(1/2) of two covariances."""
    # A dimension in which one side does not vary (a dead unit) adds nothing, and would make S singular.
    live = (s1.diagonal() > EPSILON * s1.diagonal().max()) & (s2.diagonal() > EPSILON * s2.diagonal().max())
    if not bool(live.any()):
        return 0.0
    if not bool(live.all()):
        s1, s2 = s1[live][:, live], s2[live][:, live]
    values = _eigenvalues_of_product(s1, s2)
    if values is not None:
        floor = EPSILON * max(float(values.max()), 0.0)
        roots = values.clip(min=floor) ** 0.5
        # Each eigenvalue is off by about `floor`, hence its root by floor / (2 root); what lies below is rounding.
        if floor > 0 and float((floor / (2 * roots)).sum()) <= tolerance * float(roots.sum()):
            return float(roots[values > floor].sum())
    return _nuclear_norm(_factor(s1) @ _factor(s2).T)


def _eigenvalues_of_product(s1: Any, s2: Any) -> Any:
    """The eigenvalues of S_1 S_2 other than zero, as those of L^T S_2 L; None where S_1 has no factor L."""
    from scipy import linalg  # here and below: ladders are read and shown without it, and its import takes 0.3 s

    lower = _cholesky(s1)
    if not isinstance(s1, np.ndarray):
        return None if lower is None else _decompose("eigvalsh", lower.T @ s2 @ lower)
    if lower is None:
        lower = _pivoted_cholesky(s1)
        product = lower.T @ s2 @ lower
    else:
        product, _ = linalg.lapack.dsygst(s2.T, lower, itype=2, lower=1)
    return linalg.eigh(product, lower=True, eigvals_only=True, driver="ev", overwrite_a=True, check_finite=False)


def _cholesky(s: Any) -> Any:
    """Lower L with S = L L^T, or None."""
    if not isinstance(s, np.ndarray):
        lower, info = _torch().linalg.cholesky_ex(s)
    else:
        from scipy.linalg import lapack

        # A symmetric matrix is its own transpose, and `.T` has the column order that LAPACK wants.
        lower, info = lapack.dpotrf(s.T, lower=1)
    return None if int(info) else lower


def _pivoted_cholesky(s: Any) -> Any:
    """L of full rank with S = L L^T for a covariance that may be singular; None on a GPU, which has no such routine.

    A tenth of the work of eigenvectors. It stops where what is left is below rounding.
    """
    if not isinstance(s, np.ndarray):
        return None
    from scipy.linalg import lapack

    packed, order, rank, _ = lapack.dpstrf(s.T, lower=1)
    lower = np.empty((len(s), rank))
    lower[order - 1] = np.tril(packed)[:, :rank]
    return lower


def _factor(s: Any, eps: float = 0.0) -> Any:
    """F of rank r with S + eps = F^T F; directions below rounding are left out where there is no eps."""
    lower = _cholesky(_ridge(s, eps)) if eps else _pivoted_cholesky(s)
    if lower is not None:
        return lower.T
    values, vectors = _decompose("eigh", s)
    keep = values > (-np.inf if eps else len(s) * EPSILON * float(values.max()))
    return (values[keep].clip(min=0.0) + eps)[:, None] ** 0.5 * vectors[:, keep].T


def _nuclear_norm(a: Any) -> float:
    if min(a.shape) == 0:
        return 0.0
    if isinstance(a, np.ndarray):
        return float(np.linalg.svd(a, compute_uv=False).sum())
    return float(_decompose("svdvals", a).sum())

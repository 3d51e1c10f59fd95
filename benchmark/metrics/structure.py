"""The shape of an embedding space: distances within and between classes, and the decay of its spectrum."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmark.metrics.retrieval import as_embeddings, as_labels, same_length, unit
from splits.parallel import in_one_thread

RELEASED = (-1, 1, 2, 10)
"""The offsets k of `rho_spectrum@k` that Revisiting DML logs."""
SPECTRUM = 40
"""Points of a spectrum that a record keeps, evenly spaced in the logarithm of the rank."""


def structure(embeddings: Any, labels: Any) -> dict[str, float]:
    """pi_intra, pi_inter, density and spectral decay of the normalised embeddings (Revisiting DML, section 5).

        pi_intra   mean of ||phi_i - phi_j|| over the pairs i != j of one class
        pi_inter   mean of ||mu_l - mu_k|| over the pairs of classes l != k, mu the mean embedding of a class
        density    pi_intra / pi_inter
        rho        KL(U || S), S the singular values of the embeddings without the largest, divided by their sum
        rho_class  the mean over classes of the same of each class alone (classes of at least three images)

    As released: `pi_intra_released` is the mean over classes of the mean cosine distance, `pi_inter_released` the
    mean cosine distance of the normalised class means, `density_released` their ratio; `rho_released@k` leaves the
    first |k| - 1 singular values out and is KL(U || S) for k > 0, KL(S || U) for k < 0 (so rho is
    `rho_released@2`). What does not exist is NaN: no class with two images, one class, too few dimensions; S where all
    embeddings, or all of a class, are zero vectors, whose singular values are divided by their sum of 0.
    """
    return _measured(embeddings, labels)[0]


def with_spectra(embeddings: Any, labels: Any) -> dict[str, Any]:
    """What `structure` gives and the spectra that it comes from, for a record:

        spectrum        [rank, s_rank / sum_i s_i] of the singular values s of all embeddings, at up to `SPECTRUM` ranks
        spectrum_class  the mean over classes of the same of each class alone (classes of at least three images; at
                        each rank over the classes that have it)

    Neither has a point where S does not exist, see `structure`. Revisiting DML, figures 8, 10 and 12.
    """
    measures, singular, by_class = _measured(embeddings, labels)
    ranks = max((part.shape[1] for part in by_class), default=0)
    total, count = np.zeros(ranks), np.zeros(ranks, dtype=int)
    for part in by_class:
        total[:part.shape[1]] += _normalised(part).sum(axis=0)
        count[:part.shape[1]] += len(part)
    return {**measures, "spectrum": thinned(_normalised(singular)), "spectrum_class": thinned(total / count)}


def thinned(values: np.ndarray) -> list[list[float]]:
    """[rank, value] at ranks evenly spaced in their logarithm, the first and the last among them, to four digits.

    None of values that do not exist.

    >>> thinned(np.array([0.5, 0.25, 0.125, 0.125])), thinned(np.array([np.nan, np.nan]))
    ([[1, 0.5], [2, 0.25], [3, 0.125], [4, 0.125]], [])
    """
    ranks = np.unique(np.geomspace(1, max(len(values), 1), SPECTRUM).round().astype(int))
    return [[int(rank), float(f"{values[rank - 1]:.4g}")] for rank in ranks
            if rank <= len(values) and not np.isnan(values[rank - 1])]


def _normalised(singular: np.ndarray) -> np.ndarray:
    """Singular values divided by their sum; NaN where all are 0, those of zero vectors."""
    total = singular.sum(axis=-1, keepdims=True)
    return np.divide(singular, total, out=np.full_like(singular, np.nan), where=total > 0)


def _measured(embeddings: Any, labels: Any) -> tuple[dict[str, float], np.ndarray, list[np.ndarray]]:
    """The measures, the singular values of all embeddings, and those of classes, of one size (classes, ranks)."""
    x, y = as_embeddings(embeddings), as_labels(labels)
    same_length(x, y)
    x = unit(x)
    classes = list(_stacks(x, y))
    measures = _distances(classes)
    singular = singular_values(x)
    by_class = [singular_values(stack) for stack in classes if min(stack.shape[1:]) > 2]
    measures["rho"] = decay(singular, 2)
    measures["rho_class"] = _mean([rho for part in by_class for rho in _divergence(part[:, 1:]).tolist()])
    return measures | {f"rho_released@{k}": decay(singular, k) for k in RELEASED}, singular, by_class


def singular_values(x: Tensor) -> np.ndarray:
    """The min(n, d) singular values of (..., n, d), not centred, largest first.

    From the float64 Gram matrix. float32 entries tell a singular value no better than to eps = 2^-23 of the largest;
    what is smaller is set to that, so that a collapsed embedding has a large decay and not an infinite one.
    """
    n, d = x.shape[-2:]
    if n > d:
        gram = torch.zeros(*x.shape[:-2], d, d, dtype=torch.float64, device=x.device)
        for block in x.split(8192, dim=-2):
            gram += block.double().mT @ block.double()
    else:
        gram = x.double() @ x.double().mT
    # many small matrices are quicker on the CPU, one large matrix where it is
    with in_one_thread() if gram.ndim > 2 else nullcontext():
        values = torch.linalg.eigvalsh(gram.cpu() if gram.ndim > 2 else gram)
    values = values.flip(-1).clamp(min=0).sqrt()
    return torch.maximum(values, values[..., :1] * 2.0**-23).cpu().numpy()


def decay(singular: np.ndarray, k: int = 2) -> float:
    """KL(U || S) of the singular values without the first |k| - 1, or KL(S || U) for negative k.

    >>> decay(np.array([9.0, 2.0, 2.0, 2.0]))
    0.0
    >>> round(decay(np.array([3.0, 1.0]), 1), 4)    # log(1/2 / (3/4)) / 2 + log(1/2 / (1/4)) / 2
    0.1438
    """
    left = np.asarray(singular, dtype=np.float64)[abs(k) - 1:]
    return float(_divergence(left, towards_uniform=k < 0)) if len(left) > 1 else float("nan")


def _divergence(s: np.ndarray, towards_uniform: bool = False) -> np.ndarray:
    """KL(U || S), or KL(S || U), of the rows s once they sum to 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = s / s.mean(axis=-1, keepdims=True)
        logarithm = np.log(relative)
    return np.maximum(0.0, (relative * logarithm if towards_uniform else -logarithm).mean(axis=-1))


def _stacks(x: Tensor, y: np.ndarray) -> Iterator[Tensor]:
    """The embeddings by class, classes of one size m together as (classes, m, d), in parts of bounded memory."""
    order = np.argsort(y, kind="stable")
    _, starts, sizes = np.unique(y[order], return_index=True, return_counts=True)
    for m in np.unique(sizes):
        rows = order[starts[sizes == m][:, None] + np.arange(m)]
        for part in np.array_split(rows, max(1, rows.size * max(m, x.shape[1]) // 2**24)):
            if len(part):
                yield x[torch.from_numpy(part).to(x.device)]


def _distances(classes: list[Tensor]) -> dict[str, float]:
    inside, pairs = 0.0, 0
    cosines: list[float] = []
    means = []
    for stack in classes:
        count, m, _ = stack.shape
        points = stack.double()
        total = points.sum(dim=1)
        means.append(total / m)
        if m > 1:
            for block in points.split(max(1, 2**24 // (count * m)), dim=1):
                inside += float(_euclidean(block, points).sum())
            pairs += count * m * (m - 1)
            lengths = (points**2).sum(dim=(1, 2))
            cosines += (((total**2).sum(dim=1) - lengths) / (m * (m - 1))).tolist()
    mu = torch.cat(means)
    between = sum(float(_euclidean(block, mu).sum()) for block in mu.split(1024))
    others = len(mu) * (len(mu) - 1)
    direction = normalize(mu)
    cosine = (float((direction.sum(dim=0)**2).sum()) - float((direction**2).sum())) / others if others else float("nan")
    intra, inter = _ratio(inside, pairs), _ratio(between, others)
    intra_released, inter_released = 1 - _mean(cosines), 1 - cosine
    return {"pi_intra": intra, "pi_inter": inter, "density": _ratio(intra, inter), "pi_intra_released": intra_released,
            "pi_inter_released": inter_released, "density_released": _ratio(intra_released, inter_released)}


def _euclidean(a: Tensor, b: Tensor) -> Tensor:
    """All distances between rows; those of a row to itself are zero but for rounding, which is cut off."""
    squares = (a**2).sum(dim=-1)[..., :, None] + (b**2).sum(dim=-1)[..., None, :] - 2 * a @ b.mT
    return squares.where(squares > 1e-14, squares.new_zeros(())).sqrt()


def _ratio(a: float, b: float) -> float:
    return a / b if b else float("nan")


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else float("nan")

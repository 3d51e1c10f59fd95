"""NMI and pairwise F1 of a k-means clustering of the embeddings."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from benchmark.metrics.retrieval import as_embeddings, as_labels, same_length, unit
from benchmark.metrics.search import full_precision

ITERATIONS = 20


def nmi_f1(embeddings: Any, labels: Any, seed: int) -> dict[str, float]:
    """Clusters the normalised embeddings into as many clusters as there are classes, and compares the two.

    k-means runs once, for 20 iterations from the stated seed, as in Revisiting DML (whose code has as many clusters
    as *training* classes, though).
    """
    x, y = as_embeddings(embeddings), as_labels(labels)
    same_length(x, y)
    clusters = kmeans(unit(x), len(np.unique(y)), seed)
    return {"nmi": nmi(y, clusters), "f1": f1(y, clusters)}


def library(device: str) -> str:
    """What clusters on a device: torch on a GPU; on the CPU faiss, or scikit-learn where that is not installed.

    All three run the same iterations; they start from different points, so their clusters differ.
    """
    return "torch" if torch.device(device).type != "cpu" else "faiss" if find_spec("faiss") else "scikit-learn"


def kmeans(points: Tensor, k: int, seed: int) -> np.ndarray:
    """The cluster of every point; one seed gives one clustering."""
    used, seed = library(points.device.type), seed % 2**31  # as long as faiss takes them
    if used == "torch":
        return lloyd(points, k, seed).cpu().numpy()
    data = np.ascontiguousarray(points.numpy(), dtype=np.float32)
    if used == "scikit-learn":
        from sklearn.cluster import KMeans

        return KMeans(k, n_init=1, max_iter=ITERATIONS, tol=0, random_state=seed).fit(data).labels_
    import faiss

    model = faiss.Kmeans(data.shape[1], k, niter=ITERATIONS, seed=seed, min_points_per_centroid=1,
                         max_points_per_centroid=len(data))
    model.train(data)
    return model.assign(data)[1]


def lloyd(points: Tensor, k: int, seed: int) -> Tensor:
    """k-means where the points lie: starts at k of the points, drawn by the seed.

    Each iteration takes every point to its nearest centre and every centre to the mean of its points; centres
    without any go to the points farthest from theirs. Sums are taken in the order of the points, so that a GPU gives
    the same clusters every time.

    >>> lloyd(torch.tensor([[0.0], [0.1], [5.0], [5.1]]), 2, seed=0).unique(return_counts=True)[1]
    tensor([2, 2])
    """
    start = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed))[:k]
    centres = points[start.to(points.device)]
    with full_precision(points.device.type):
        for _ in range(ITERATIONS):
            cluster, distance = _nearest_centre(points, centres)
            counts = cluster.bincount(minlength=k)
            sums = torch.segment_reduce(points[cluster.argsort(stable=True)], "sum", lengths=counts, axis=0)
            centres = sums / counts.clamp(min=1)[:, None]
            empty = (counts == 0).nonzero().squeeze(1)
            centres[empty] = points[distance.argsort(descending=True, stable=True)[:len(empty)]]
        return _nearest_centre(points, centres)[0]


def _nearest_centre(points: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """The centre nearest to each point, the first of equals, and its squared distance.

        ||x - c||^2 = ||x||^2 - 2 (x . c - ||c||^2 / 2)
    """
    half = centres.square().sum(dim=1) / 2
    parts = [torch.addmm(half, part, centres.T, beta=-1).max(dim=1)
             for part in points.split(max(1, 2**28 // len(centres)))]
    product, cluster = (torch.cat(column) for column in zip(*parts))
    return cluster, points.square().sum(dim=1) - 2 * product


def contingency(classes: np.ndarray, clusters: np.ndarray) -> csr_matrix:
    """How many images of each class lie in each cluster; sparse, as almost all are none."""
    rows, columns = (np.unique(of, return_inverse=True)[1] for of in (classes, clusters))
    table = csr_matrix((np.ones(len(rows), dtype=np.int64), (rows, columns)))
    table.sum_duplicates()
    return table


def nmi(classes: np.ndarray, clusters: np.ndarray) -> float:
    """Normalised mutual information, arithmetic mean of the entropies: 2 I(U; V) / (H(U) + H(V)).

    >>> nmi(np.array([0, 0, 1, 1]), np.array([5, 5, 3, 3]))
    1.0
    """
    table = contingency(classes, clusters).tocoo()
    n = table.data.sum()
    u, v = (np.asarray(table.sum(axis=axis)).ravel() / n for axis in (1, 0))
    joint = table.data / n
    information = float((joint * np.log(joint / (u[table.row] * v[table.col]))).sum())
    entropies = -float((u * np.log(u)).sum() + (v * np.log(v)).sum())
    return 1.0 if entropies == 0 else min(1.0, max(0.0, 2 * information / entropies))


def f1(classes: np.ndarray, clusters: np.ndarray) -> float:
    """F1 over pairs of images: 2 TP / (pairs in one cluster + pairs of one class), TP the pairs that are both.

    >>> f1(np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]))
    0.4
    """
    table = contingency(classes, clusters)

    def pairs(counts: np.ndarray) -> int:
        return int((counts * (counts - 1) // 2).sum())

    together, grouped, same = (pairs(np.asarray(counts).ravel())
                               for counts in (table.data, table.sum(axis=0), table.sum(axis=1)))
    return 2 * together / (grouped + same) if grouped + same else 1.0

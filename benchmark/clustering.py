"""NMI and pairwise F1 of a k-means clustering of the embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.nn.functional import normalize

from benchmark.metrics import as_embeddings, as_labels, same_length

ITERATIONS = 20


def nmi_f1(embeddings: Any, labels: Any, seed: int) -> dict[str, float]:
    """Clusters the normalised embeddings into as many clusters as there are classes, and compares the two.

    k-means runs once, for 20 iterations from the stated seed: by faiss on all points, by scikit-learn where faiss
    is not installed (the two give different clusterings).
    """
    x, y = as_embeddings(embeddings), as_labels(labels)
    same_length(x, y)
    clusters = kmeans(normalize(x), len(np.unique(y)), seed)
    return {"nmi": nmi(y, clusters), "f1": f1(y, clusters)}


def kmeans(points: Tensor, k: int, seed: int) -> np.ndarray:
    """The cluster of every point."""
    data = np.ascontiguousarray(points.cpu().numpy(), dtype=np.float32)
    try:
        import faiss
    except ImportError:
        from sklearn.cluster import KMeans

        return KMeans(k, n_init=1, max_iter=ITERATIONS, random_state=seed).fit(data).labels_
    model = faiss.Kmeans(data.shape[1], k, niter=ITERATIONS, seed=seed, min_points_per_centroid=1,
                         max_points_per_centroid=len(data))
    model.train(data)
    return model.assign(data)[1]


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

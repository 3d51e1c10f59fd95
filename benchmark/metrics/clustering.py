"""NMI and pairwise F1 of a k-means clustering of the embeddings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.nn.functional import normalize

from benchmark.metrics.retrieval import as_embeddings, as_labels, same_length, scaled
from benchmark.metrics.search import full_precision

ITERATIONS = 20
KMEANS = "torch-lloyd"
"""What a record calls this k-means; records made before it say torch, faiss or scikit-learn, whose clusters differ."""
_BLOCK = 2**26
"""Similarities held at once: 256 MB."""


def nmi_f1(embeddings: Any, labels: Any, seed: int) -> dict[str, float]:
    """Clusters the normalised embeddings into as many clusters as there are classes, and compares the two.

    k-means runs once, for 20 iterations from the stated seed, as in Revisiting DML (whose code has as many clusters
    as *training* classes, though).

    Args:
        embeddings: one row an image, an array or a tensor on any device.
        labels: the class of each image.
        seed: draws the images at which the clusters start.

    Returns:
        `nmi` and `f1`, each in [0, 1].
    """
    x, y = as_embeddings(embeddings), as_labels(labels)
    same_length(x, y)
    clusters = kmeans(normalize(scaled(x).double()), len(np.unique(y)), seed).cpu().numpy()
    return {"nmi": nmi(y, clusters), "f1": f1(y, clusters)}


def kmeans(points: Tensor, k: int, seed: int) -> Tensor:
    """The cluster of every point by Lloyd's iterations from k of the points, drawn by the seed on the CPU.

        z_i = argmin_j ||x_i - c_j||,   c_j = mean of {x_i : z_i = j}

    A cluster left without points takes one of those farthest from their centres, as in scikit-learn. Every device
    gives the same clusters: what float32 products cannot decide is decided in float64, equal distances by order.

    >>> kmeans(torch.tensor([[0.0], [0.1], [5.0], [5.1]]), 2, seed=0).unique(return_counts=True)[1]
    tensor([2, 2])
    """
    points = points.double()
    start = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed % 2**63))[:k]
    centres = points[start.to(points.device)]
    scale = 2.0 ** math.frexp(float(points.square().sum(dim=1).max()))[1]
    with full_precision(points.device.type):
        for _ in range(ITERATIONS):
            cluster = _nearest_centre(points, centres, scale)
            empty = (cluster.bincount(minlength=k) == 0).nonzero().squeeze(1)
            if len(empty):
                distance = _rounded((points - centres[cluster]).square().sum(dim=1), scale)
                cluster[distance.argsort(descending=True, stable=True)[:len(empty)]] = empty
            counts = cluster.bincount(minlength=k)
            # in the order of the points, so that a sum is the same every time
            sums = torch.segment_reduce(points[cluster.argsort(stable=True)], "sum", lengths=counts, axis=0)
            centres = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], centres)
        return _nearest_centre(points, centres, scale)


def _nearest_centre(points: Tensor, centres: Tensor, scale: float) -> Tensor:
    """The centre nearest to each point, the first of equals.

        argmin_j ||x - c_j||^2 = argmax_j x . c_j - ||c_j||^2 / 2

    Products are float32, which is several times faster than float64. A point with a second centre within their
    rounding of the best (2^-14 of the squared length is ample) is looked at again in float64.
    """
    half, chosen = centres.square().sum(dim=1) / 2, []
    for part in points.split(max(1, _BLOCK // len(centres))):
        scores = torch.addmm(half.float(), part.float(), centres.float().T, beta=-1)
        best, cluster = scores.max(dim=1)
        unsure = ((scores >= best[:, None] - 2**-14 * scale).sum(dim=1) > 1).nonzero().squeeze(1)
        for rows in unsure.split(max(1, _BLOCK // 4 // len(centres))):
            again = torch.addmm(half, part[rows], centres.T, beta=-1)
            cluster[rows] = _rounded(again, scale).max(dim=1).indices
        chosen.append(cluster)
    return torch.cat(chosen)


def _rounded(values: Tensor, scale: float) -> Tensor:
    """float64 values in steps of 2^-36 of the scale: equal points tie, though their products may end in other bits."""
    return (values * (2**36 / scale)).round()


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

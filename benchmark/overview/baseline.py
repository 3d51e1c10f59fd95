"""How hard a dataset is before anything is learnt: Recall@1 of raw pixels and of frozen features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from benchmark.data.store import ImageStore
    from benchmark.datasets.index import DatasetIndex
    from benchmark.utils.workspace import Workspace

QUERIES = 2000
"""Raw pixels are wide vectors: so many queries, evenly spaced over the test images, search all of them."""


def raw_pixel_recall(index: DatasetIndex, store: ImageStore, queries: int = QUERIES) -> float:
    """Recall@1 of the default test split by the Euclidean distance of RGB bytes; images must have one size.

    The nearest x_j of x_i has the largest <x_i, x_j> - |x_j|^2 / 2, which is an inner product of longer vectors.
    """
    import torch

    from benchmark.metrics.search import neighbours

    test = index.of_classes(index.test_classes)
    pixels = torch.from_numpy(np.stack([store.image(int(i)).ravel() for i in test])).float() / 255 - 0.5
    labels = torch.from_numpy(np.asarray(index.labels)[test])
    chosen = torch.from_numpy(np.unique(np.linspace(0, len(test) - 1, min(queries, len(test))).astype(int)))
    gallery = torch.cat([pixels, -0.5 * pixels.square().sum(dim=1, keepdim=True)], dim=1)
    asked = torch.cat([pixels[chosen], torch.ones(len(chosen), 1)], dim=1)
    nearest, _ = neighbours(asked, gallery, 1, exclude_self=chosen)
    return float((labels[nearest[:, 0]] == labels[chosen]).double().mean())


def frozen_recall(index: DatasetIndex, store: ImageStore, workspace: Workspace) -> float:
    """Recall@1 of the default test split by the cosine of the features that its ladder is built from."""
    from benchmark.ladders.features import frozen_features
    from benchmark.metrics.retrieval import retrieval

    _, features, made_with = frozen_features(index.name, workspace)
    assert made_with["images"] == store.hash
    test = index.of_classes(index.test_classes)
    return retrieval(np.asarray(features[test]), np.asarray(index.labels)[test], ks=(1,))["recall@1"]

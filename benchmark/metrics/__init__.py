"""What embeddings are measured by: retrieval, clustering, structure, thresholds, unions of datasets; and the search."""

from benchmark.metrics.retrieval import retrieval

__all__ = ["retrieval"]

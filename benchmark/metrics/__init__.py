"""What embeddings are measured by: retrieval, clustering, structure, and measures of a union of datasets."""

from benchmark.metrics.retrieval import retrieval

__all__ = ["retrieval"]
